// Locality sets as the store keeps them: named groups of a session's objects, with attributes that eviction reads.
//
//   free --define--> live --its session ends--> free (generation + 1)
//
// The set without a name is the session's default one: of objects that belong to no other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/sessions.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SetTable {
 public:
  SetTable(ControlMemory& memory, const SessionTable& sessions);

  // After the sessions. How many entries were damaged.
  [[nodiscard]] std::uint32_t adopt();

  // The number by which clients speak of a set: see SessionTable::handle.
  [[nodiscard]] std::uint32_t handle(std::uint32_t index) const;
  // kInvalidArgument if there is no such set, or it is of another session.
  [[nodiscard]] Result<std::uint32_t> index_of(std::uint32_t handle, std::uint32_t session) const;

  // Makes the set, or changes it. kInvalidArgument for a name or attributes of the wrong form, kStoreFull.
  [[nodiscard]] Result<std::uint32_t> define(std::uint32_t session, std::string_view name, const SetChange& change);
  // What a session takes with it; after its objects.
  void drop_session(std::uint32_t session);

  [[nodiscard]] const std::uint32_t* find(std::uint32_t session, std::string_view name) const;
  [[nodiscard]] std::vector<std::uint32_t> of_session(std::uint32_t session) const;
  [[nodiscard]] SetAttributes attributes(std::uint32_t index) const;
  [[nodiscard]] std::string_view name(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t session(std::uint32_t index) const { return table_.at(index).session; }

  // Objects name their set by Slot::locality_set: index + 1, or 0 for the session's default one.
  [[nodiscard]] std::uint32_t field_of(std::uint32_t index) const { return name(index).empty() ? 0 : index + 1; }
  // The set that a field means; null: the session's default one, about which nothing was said.
  [[nodiscard]] const std::uint32_t* find_field(std::uint32_t session, std::uint32_t field) const;
  // The number under which the eviction policy knows the set.
  [[nodiscard]] std::uint32_t policy_number(std::uint32_t session, std::uint32_t field) const;

 private:
  using Key = std::pair<std::uint32_t, std::string>;

  const SessionTable* sessions_;
  EntryTable<LocalitySet> table_;
  std::map<Key, std::uint32_t> by_name_;
};

}  // namespace entrepot
