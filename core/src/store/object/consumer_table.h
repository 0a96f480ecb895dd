// Consumers of each object whose consumers are counted. Stored in control memory beside the objects, so neither a rerun
// consumer nor a restarted daemon counts anyone twice.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/entry_index.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/entry_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ConsumerTable {
 public:
  explicit ConsumerTable(ControlMemory& memory);

  // Call after the directory was adopted. Returns the number of damaged entries; frees those of objects that are gone.
  [[nodiscard]] std::uint32_t adopt(const DirectoryWriter& directory);

  // Number of consumers of the object so far, this one included. kStoreFull if the table is full.
  [[nodiscard]] Result<std::uint32_t> record(std::uint32_t slot, std::uint32_t generation, std::string_view consumer);
  [[nodiscard]] std::uint32_t count(std::uint32_t slot) const;
  void forget(std::uint32_t slot);  // the object ended
  std::uint64_t trim();             // returns memory that the table no longer needs to the system; the number of bytes
  [[nodiscard]] std::vector<std::uint32_t> slots() const;
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }

 private:
  [[nodiscard]] std::uint32_t first_of(std::uint32_t slot) const;  // kNoEntry: nobody consumed it
  void link(std::uint32_t index);

  EntryTable<Consumption> table_;
  EntryIndex by_slot_;  // the first entry of each object that has one
  EntryLists of_slot_;
};

}  // namespace entrepot
