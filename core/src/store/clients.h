// Clients: who holds pins and leases. A client outlives its connection: it may come back, and its values stay readable.
//
//   free --begin, publish--> connected --connection ends--> away --token and pin table--> connected
//                                |                            |
//                                +-----liveness ended---------+--> free (generation + 1): pins and leases are void
//   restart: whoever was connected or away is quarantined, which is away with its leases kept.
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
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t pin_capacity = 0;  // 0: not known
  std::string label;
  bool forked = false;  // registered by its parent, for the child of a fork
};

struct ClientState {
  std::uint64_t token = 0;
  ClientIdentity identity;
  std::uint64_t connected_unix_ns = 0;
  bool connected = false;
  bool quarantined = false;  // since a restart it has neither come back nor died
};

// Guarded by the daemon's thread.
class ClientTable {
 public:
  explicit ClientTable(ControlMemory& memory);

  // The clients there were; all away and quarantined. Returns how many entries had a wrong checksum: those clients have
  // no token by which they could come back, and no known size of their pin table.
  [[nodiscard]] std::uint32_t adopt();

  // A number for a new client; publish() or abandon() it.
  [[nodiscard]] Result<std::uint32_t> begin() { return table_.allocate(); }
  void abandon(std::uint32_t client) { table_.abandon(client); }
  void publish(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity, std::uint64_t now_unix_ns);
  void remove(std::uint32_t client);

  [[nodiscard]] ClientState* find(std::uint32_t client);
  [[nodiscard]] const ClientState* find(std::uint32_t client) const;
  [[nodiscard]] const std::map<std::uint32_t, ClientState>& all() const { return states_; }
  [[nodiscard]] std::string describe(std::uint32_t client) const;  // `client 3 (python, process 4711)`
  [[nodiscard]] std::size_t connected() const;

 private:
  EntryTable<ClientEntry> table_;
  std::map<std::uint32_t, ClientState> states_;
};

}  // namespace entrepot
