#include "store/paging/reload_reserve.h"

#include <algorithm>

namespace entrepot {
namespace {

constexpr std::uint64_t kSlack = 64U << 10;  // headers and rounding on disk

}  // namespace

void ReloadReserve::begin_turn() {
  const std::uint64_t now = blobs_->spilled_bytes();
  if (now < spilled_bytes_ && knowledge_ == Knowledge::kExact) knowledge_ = Knowledge::kUpperBound;
  spilled_bytes_ = now;
}

void ReloadReserve::evicted(std::uint64_t largest, std::uint64_t spilled_more) {
  largest_ = std::max(largest_, largest);
  spilled_bytes_ += spilled_more;
}

bool ReloadReserve::allows(std::uint64_t bytes, std::uint64_t largest, std::uint64_t exchangeable) {
  if (knowledge_ == Knowledge::kUnknown) measure();
  if (leaves_enough(bytes, largest, exchangeable)) return true;
  if (knowledge_ == Knowledge::kExact) return false;
  measure();
  return leaves_enough(bytes, largest, exchangeable);
}

bool ReloadReserve::leaves_enough(std::uint64_t bytes, std::uint64_t largest, std::uint64_t exchangeable) const {
  const std::uint64_t largest_on_disk = std::max(largest_, largest);  // afterwards
  return exchangeable >= bytes + largest_on_disk + largest_on_disk / 8 + kSlack;
}

void ReloadReserve::measure() {
  knowledge_ = Knowledge::kExact;
  largest_ = 0;
  if (blobs_->spilled_bytes() == 0) return;
  const DirectoryWriter& directory = catalog_->directory();
  for (std::uint32_t slot = 0; slot < catalog_->slot_end(); ++slot) {
    if (!directory.is_findable(slot) || catalog_->is_resident(slot)) continue;
    std::uint64_t absent = 0;
    for (const std::uint32_t blob : catalog_->blobs_of(slot)) {
      if (!blobs_->is_resident(blob)) absent += blobs_->place(blob).length;
    }
    largest_ = std::max(largest_, absent);
  }
}

}  // namespace entrepot
