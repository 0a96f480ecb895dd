// Locality set table: named groups of a session's objects, with attributes that eviction uses.
//
//   free --define--> live --its session ends--> free (generation + 1)
//
// The set with the empty name is the session's default set; it holds the objects that belong to no other set.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/entry_index.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/session/session_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class LocalitySetTable {
 public:
  LocalitySetTable(ControlMemory& memory, const SessionTable& sessions);

  // Call after the sessions were adopted. Returns the number of damaged entries.
  [[nodiscard]] std::uint32_t adopt();

  // Handle by which clients refer to a set: see SessionTable::handle.
  [[nodiscard]] std::uint32_t handle(std::uint32_t index) const;
  // kInvalidArgument if there is no such set, or it belongs to another session.
  [[nodiscard]] Result<std::uint32_t> index_of(std::uint32_t handle, std::uint32_t session) const;

  // Creates or changes the set. kInvalidArgument for an invalid name or invalid attributes, kStoreFull.
  [[nodiscard]] Result<std::uint32_t> define(std::uint32_t session, std::string_view name, const SetChange& change);
  // Removes a session's sets; call after its objects were removed.
  void drop_session(std::uint32_t session);

  [[nodiscard]] const std::uint32_t* find(std::uint32_t session, std::string_view name) const;
  [[nodiscard]] std::vector<std::uint32_t> of_session(std::uint32_t session) const;  // sorted by name
  [[nodiscard]] SetAttributes attributes(std::uint32_t index) const;
  [[nodiscard]] std::string_view name(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t session(std::uint32_t index) const { return table_.at(index).session; }

  // Objects refer to their set by Slot::locality_set: index + 1, or 0 for the session's default set.
  [[nodiscard]] std::uint32_t field_of(std::uint32_t index) const { return name(index).empty() ? 0 : index + 1; }
  // The set that a field refers to; null: the session's default set, which was never defined.
  [[nodiscard]] const std::uint32_t* find_field(std::uint32_t session, std::uint32_t field) const;
  // Number of the set in the eviction policy.
  [[nodiscard]] std::uint32_t policy_number(std::uint32_t session, std::uint32_t field) const;

 private:
  [[nodiscard]] static std::uint64_t name_hash(std::uint32_t session, std::string_view name);
  void link(std::uint32_t index);

  const SessionTable* sessions_;
  EntryTable<LocalitySet> table_;
  EntryIndex by_name_;
  OwnedEntries of_session_;
};

}  // namespace entrepot
