// Name table: human-readable aliases of objects in a session, rebound atomically.
//
//   free --bind--> live --unbind, rebind, or its object goes--> free (generation + 1)
//
// Rebinding publishes a new entry with a higher version, then frees the old one. A daemon that adopts the memory
// between the two steps finds both, and the higher version wins: the name is never unbound, and never bound to two
// objects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/entry_index.h"
#include "base/id.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"

namespace entrepot {

// Guarded by the daemon's thread. Sessions are identified by index. The names are only in the control memory; per name,
// the daemon's own memory has about 60 bytes (daemon_heap_bytes), whatever its length.
class NameTable {
 public:
  explicit NameTable(ControlMemory& memory);

  // Frees the entries for which `keep(session, id)` returns false. Returns how many had a wrong checksum.
  template <class Keep>
  std::uint32_t adopt(Keep&& keep) {
    std::uint32_t damaged = 0;
    std::vector<std::uint32_t> superseded;
    table_.adopt([&](std::uint32_t index, Name& name) {
      if (!is_sound(index)) {
        ++damaged;
        return false;
      }
      if (name.version > version_) version_ = name.version;
      if (!keep(name.session, name.id)) return false;
      const std::uint32_t* other = find(name.session, text(index));
      if (other == nullptr) {
        by_name_.insert(name_hash(name.session, text(index)), index);
        return true;
      }
      if (table_.at(*other).version > name.version) return false;
      superseded.push_back(*other);
      by_name_.replace(name_hash(name.session, text(index)), *other, index);
      return true;
    });
    for (const std::uint32_t index : superseded)
      table_.free(index);
    by_name_.for_each([&](std::uint32_t index) { link(index); });
    return damaged;
  }

  [[nodiscard]] static Status check(std::string_view name);  // not empty, not too long, no zero byte

  // kObjectExists if the name is bound to another ID and `replace` is false; rebinding to the same ID succeeds.
  [[nodiscard]] Status check_binding(std::uint32_t session, std::string_view name, const IdBytes& id,
                                     bool replace) const;
  [[nodiscard]] Status prepare() { return table_.prepare(); }  // ensures memory for the next bind()
  [[nodiscard]] Status bind(std::uint32_t session, std::string_view name, const IdBytes& id, std::uint32_t generation,
                            bool replace);
  [[nodiscard]] const IdBytes* resolve(std::uint32_t session, std::string_view name) const;
  bool unbind(std::uint32_t session, std::string_view name);  // false: it was not bound

  void drop_id(const IdBytes& id);  // unbinds all names of a deleted object, in every session
  void drop_session(std::uint32_t session);

  std::uint64_t trim();  // returns memory that the table no longer needs to the system; the number of bytes

  [[nodiscard]] std::vector<std::string> names_of(const IdBytes& id) const;  // in every session
  [[nodiscard]] std::vector<std::string> names_of(const IdBytes& id, std::uint32_t session) const;
  template <class Visit>
  void for_each_of(const IdBytes& id, Visit&& visit) const {  // visit(session, name)
    for (std::uint32_t index = first_of(id); index != kNoEntry; index = of_id_.next(index))
      visit(table_.at(index).session, text(index));
  }
  [[nodiscard]] std::size_t count() const { return by_name_.size(); }

 private:
  [[nodiscard]] bool is_sound(std::uint32_t index) const;
  [[nodiscard]] std::string_view text(std::uint32_t index) const;
  [[nodiscard]] static std::uint64_t name_hash(std::uint32_t session, std::string_view text);
  [[nodiscard]] const std::uint32_t* find(std::uint32_t session, std::string_view name) const;
  [[nodiscard]] std::uint32_t first_of(const IdBytes& id) const;  // kNoEntry: it has no name
  void link(std::uint32_t index);    // adds the entry to the lists of its object and its session
  void unlink(std::uint32_t index);  // the opposite
  void drop(std::uint32_t index);    // removes the entry from the index and all lists, and frees it

  EntryTable<Name> table_;
  EntryIndex by_name_;
  EntryIndex by_id_;  // the first name of each object that has one
  EntryLists of_id_;
  OwnedEntries of_session_;
  std::uint64_t version_ = 0;  // highest assigned
};

}  // namespace entrepot
