#include "store/memory/load_allocator.h"

#include <algorithm>

#include "base/align.h"
#include "os/memfd.h"

namespace entrepot {

LoadAllocator::LoadAllocator(LiveSegments& live, SegmentProvisioning& provisioning, SegmentReclaimer& reclaimer,
                             const SegmentSizes& sizes)
    : live_(&live), provisioning_(&provisioning), reclaimer_(&reclaimer), sizes_(&sizes) {}

Result<std::optional<BlobLocation>> LoadAllocator::allocate(std::uint64_t bytes, LeaseWait& wait) {
  if (provisioning_->is_under_way(wait)) return std::optional<BlobLocation>();
  if (const std::uint32_t segment = provisioning_->take(wait); segment != kNoSegment) {
    if (auto place = allocate_in(segment, bytes)) return place;
  }
  for (const SegmentState state : {SegmentState::kReturned, SegmentState::kFree}) {
    const std::uint32_t segment = best_fit(state, bytes);
    if (segment == kNoSegment) continue;
    if (auto place = allocate_in(segment, bytes)) return place;
  }
  const std::uint64_t min_length = round_up(bytes, kSegmentAlign);
  std::uint64_t size = std::max(min_length, sizes_->small_bytes());
  if (!reclaimer_->reclaim(size)) {
    size = min_length;
    if (!reclaimer_->reclaim(size)) return std::optional<BlobLocation>();
  }
  RETURN_IF_ERROR(provisioning_->start(size, wait));
  if (provisioning_->is_under_way(wait)) return std::optional<BlobLocation>();
  return allocate(bytes, wait);  // the source answered at once: with the segment, or by refusing it
}

std::uint32_t LoadAllocator::best_fit(SegmentState state, std::uint64_t bytes) const {
  const std::uint64_t wanted = round_up(bytes, os::page_bytes());
  std::uint32_t best = kNoSegment;
  std::uint64_t best_free = 0;
  for (const auto& [segment, entry] : live_->all()) {
    const bool usable = state == SegmentState::kFree ? live_->is_free(segment, entry) : live_->state(segment) == state;
    const std::uint64_t largest = entry.ranges.largest_free();
    if (!usable || entry.withheld || live_->table().is_isolated(segment) || largest < wanted) continue;
    if (best != kNoSegment && largest >= best_free) continue;
    best = segment;
    best_free = largest;
  }
  return best;
}

std::optional<BlobLocation> LoadAllocator::allocate_in(std::uint32_t segment, std::uint64_t bytes) {
  const std::uint64_t align = bytes >= kOwnPagesBytes ? os::page_bytes() : kBlobAlign;
  const auto offset = live_->ranges(segment).allocate_blob(round_up(bytes, align), align);
  if (!offset) return std::nullopt;
  live_->take_for_loads(segment);
  return BlobLocation{segment, *offset, bytes, live_->table().generation(segment)};
}

}  // namespace entrepot
