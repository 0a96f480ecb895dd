// Who has had which object, of those whose consumers are counted. Kept beside the objects, so that neither a consumer
// that is run again nor a daemon that is restarted counts anybody twice.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/entry_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ConsumptionTable {
 public:
  explicit ConsumptionTable(ControlMemory& memory);

  // After the directory. How many entries were damaged; those of objects that are gone go too.
  [[nodiscard]] std::uint32_t adopt(const DirectoryWriter& directory);

  // How many consumers have had the object, this one included. kStoreFull when the table is.
  [[nodiscard]] Result<std::uint32_t> record(std::uint32_t slot, std::uint32_t generation, std::string_view consumer);
  [[nodiscard]] std::uint32_t count(std::uint32_t slot) const;
  void forget(std::uint32_t slot);  // the object ended
  [[nodiscard]] std::vector<std::uint32_t> slots() const;
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }

 private:
  EntryTable<Consumption> table_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> by_slot_;  // entries
};

}  // namespace entrepot
