// Opening table: which clients have which sessions open. It is in control memory, so that after a daemon's death no
// session ends because its clients have had no reason to reconnect yet.
//
//   none --add--> open --remove, remove_client or remove_session--> none
//
// A session is open for a client until the client closes it or ends, whether or not it is connected.
#pragma once

#include <cstdint>
#include <vector>

#include "base/entry_index.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/session/client_table.h"
#include "store/session/session_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class OpeningTable {
 public:
  explicit OpeningTable(ControlMemory& memory);

  // Call after clients and sessions were adopted. Returns the number of damaged entries; frees those whose client or
  // session has ended, and tells `sessions` of the others.
  [[nodiscard]] std::uint32_t adopt(const ClientTable& clients, SessionTable& sessions);

  // Returns whether the client had it closed. kStoreFull if the table is full.
  [[nodiscard]] Result<bool> add(std::uint32_t client, std::uint32_t client_generation, std::uint32_t session,
                                 std::uint32_t session_generation);
  bool remove(std::uint32_t client, std::uint32_t session);        // whether it was open
  std::vector<std::uint32_t> remove_client(std::uint32_t client);  // returns the sessions that it had open
  void remove_session(std::uint32_t session);                      // for all clients

 private:
  void link(std::uint32_t index);
  void end(std::uint32_t index);
  [[nodiscard]] std::uint32_t find(std::uint32_t client, std::uint32_t session) const;  // kNoEntry: it is not open

  EntryTable<Opening> table_;
  OwnedEntries of_client_;
  OwnedEntries of_session_;
};

}  // namespace entrepot
