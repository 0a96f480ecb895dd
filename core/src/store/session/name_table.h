// Name table: human-readable aliases of objects in a session, rebound atomically.
//
//   free --bind--> live --unbind, rebind, or its object goes--> free (generation + 1)
//
// Rebinding publishes a new entry with a higher version, then frees the old one. A daemon that adopts the memory
// between the two steps finds both, and the higher version wins: the name is never unbound, and never bound to two
// objects.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"

namespace entrepot {

// Guarded by the daemon's thread. Sessions are identified by index.
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
      const auto [it, fresh] = by_name_.try_emplace(Key(name.session, text(index)), index);
      if (fresh) return true;
      if (table_.at(it->second).version > name.version) return false;
      superseded.push_back(std::exchange(it->second, index));
      return true;
    });
    for (const std::uint32_t index : superseded)
      table_.free(index);
    for (const auto& [key, index] : by_name_)
      by_id_[table_.at(index).id].push_back(index);
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

  std::uint64_t trim() { return table_.trim(); }  // returns unneeded memory to the system; the number of bytes

  [[nodiscard]] std::vector<std::string> names_of(const IdBytes& id) const;
  [[nodiscard]] std::size_t count() const { return by_name_.size(); }

 private:
  using Key = std::pair<std::uint32_t, std::string>;

  [[nodiscard]] bool is_sound(std::uint32_t index) const;
  [[nodiscard]] std::string_view text(std::uint32_t index) const;
  void forget(std::uint32_t index);  // frees the entry and removes it from by_id_

  EntryTable<Name> table_;
  std::map<Key, std::uint32_t> by_name_;
  std::unordered_map<IdBytes, std::vector<std::uint32_t>, IdHash> by_id_;
  std::uint64_t version_ = 0;  // highest assigned
};

}  // namespace entrepot
