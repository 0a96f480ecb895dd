#include "store/object/withheld_memory.h"

#include <algorithm>
#include <set>

#include "os/log.h"

namespace entrepot {

WithheldMemory::WithheldMemory(const ObjectCatalog& catalog, const PinScanner& pins, RecordArena& records,
                               SegmentPool& pool)
    : catalog_(&catalog), pins_(&pins), records_(&records), pool_(&pool) {}

// Pins of objects that are being deleted or were dropped do not count: the former still own their memory, and nobody
// reads the latter.
void WithheldMemory::withhold(std::span<const std::uint32_t> damaged) {
  const DirectoryWriter& directory = catalog_->directory();
  std::set<PinTarget> unexplained;
  for (const std::uint32_t slot : damaged)
    unexplained.insert(catalog_->target(slot));
  pins_->for_each([&](std::uint32_t, const PinTarget& pin) {
    if (!directory.is_live(pin.slot, pin.generation) || directory.state(pin.slot) == ObjectState::kLost) {
      unexplained.insert(pin);
    }
  });
  unexplained_.assign(unexplained.begin(), unexplained.end());
  const std::vector<std::uint8_t> pinned = pins_->scan(unexplained_);
  const auto count = std::count_if(pinned.begin(), pinned.end(), [](auto is_pinned) { return is_pinned != 0; });
  if (count == 0) return unexplained_.clear();
  log_warning("readers may still use ", count,
              " damaged or unknown objects: memory that appears free is not reused until these are released");
  records_->withhold();
}

bool WithheldMemory::release() {
  if (!is_withholding()) return false;
  const std::vector<std::uint8_t> pinned = pins_->scan(unexplained_);
  if (std::any_of(pinned.begin(), pinned.end(), [](auto is_pinned) { return is_pinned != 0; })) return false;
  unexplained_.clear();
  records_->release_withheld();
  pool_->release_withheld();
  log_info("damaged objects have no readers left: their memory is reused");
  return true;
}

}  // namespace entrepot
