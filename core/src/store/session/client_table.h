// Client table: the processes that hold pins and leases. A client outlives its connection: it may reconnect, and its
// values stay readable meanwhile.
//
//   free --begin, publish--> connected --connection ends--> away --token and pin table--> connected
//                                |                            |
//                                +-------liveness ended-------+--> free (generation + 1): pins and leases are void
//
//   restart: clients that were connected or away are quarantined, i.e. away with their leases kept
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/types.h"

namespace entrepot {

struct ClientIdentity {
  std::uint32_t pid = 0;  // 0: unknown, as in another PID namespace, or while a forked child has not sent it
  std::uint32_t uid = 0;
  std::uint32_t pin_capacity = 0;  // 0: unknown
  std::string label;
  bool forked = false;  // registered by its parent, for the child of a fork
};

struct ClientState {
  std::uint64_t token = 0;
  ClientIdentity identity;
  std::uint64_t connected_unix_ns = 0;
  bool connected = false;
  bool quarantined = false;  // neither reconnected nor died since a restart
};

// Guarded by the daemon's thread.
class ClientTable {
 public:
  explicit ClientTable(ControlMemory& memory);

  // Restores the clients, all away and quarantined. Returns how many entries had a wrong checksum: those clients have
  // no token to reconnect with, and the size of their pin table is unknown.
  [[nodiscard]] std::uint32_t adopt();

  // Allocates a number for a new client; follow with publish() or abandon().
  [[nodiscard]] Result<std::uint32_t> begin() { return table_.allocate(); }
  void abandon(std::uint32_t client) { table_.abandon(client); }
  void publish(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity, std::uint64_t now_unix_ns);
  void remove(std::uint32_t client);

  [[nodiscard]] ClientState* find(std::uint32_t client);
  [[nodiscard]] const ClientState* find(std::uint32_t client) const;
  [[nodiscard]] const std::map<std::uint32_t, ClientState>& all() const { return states_; }
  // Of the entry: a later client with the same number has another. 0 for a client that is not registered.
  [[nodiscard]] std::uint32_t generation(std::uint32_t client) const;
  [[nodiscard]] std::string describe(std::uint32_t client) const;  // `client 3 (python, process 4711)`
  [[nodiscard]] std::size_t connected() const;

 private:
  EntryTable<ClientEntry> table_;
  std::map<std::uint32_t, ClientState> states_;
};

}  // namespace entrepot
