#include "store/memory/segment_adopter.h"

#include <utility>
#include <vector>

namespace entrepot {

SegmentAdopter::SegmentAdopter(LiveSegments& live, SegmentReclaimer& reclaimer, MemorySource& source)
    : live_(&live), reclaimer_(&reclaimer), source_(&source) {}

std::uint32_t SegmentAdopter::begin() {
  const SegmentTable& table = live_->table();
  const SegmentAdoption adoption = live_->adopt_table();
  for (const std::uint32_t segment : adoption.damaged)
    live_->discard(segment);
  auto lost = static_cast<std::uint32_t>(adoption.damaged.size());
  for (const std::uint32_t segment : adoption.live) {
    const std::uint32_t generation = table.generation(segment);
    if (table.state(segment) == SegmentState::kProvisioning) {  // nothing depends on it yet
      live_->discard(segment);
      source_->drop(segment, generation);
      continue;
    }
    MemorySource::Existing memory = source_->find(segment, generation, table.bytes(segment));
    if (!memory.exists) {
      ++lost;
      live_->discard(segment);
      continue;
    }
    live_->adopt(segment);
    if (!memory.holes.empty()) holes_[segment] = std::move(memory.holes);
  }
  return lost;
}

Status SegmentAdopter::adopt_blob(const BlobLocation& place) {
  const auto [segment, offset, length, generation] = place;
  const LiveSegment* entry = live_->find(segment);
  if (entry == nullptr || live_->table().generation(segment) != generation) {
    return Status(Code::kObjectLost, concat("segment ", segment, " of generation ", generation, " no longer exists"));
  }
  const std::uint64_t size = entry->ranges.bytes();
  if (length == 0 || offset > size || length > size - offset) {
    return Status(Code::kCorruptData, concat("a blob of ", length, " bytes at ", offset, " is outside of segment ",
                                             segment, " of ", size, " bytes"));
  }
  return live_->ranges(segment).adopt_blob(offset, blob_extent_bytes(offset, length));
}

void SegmentAdopter::end(bool withhold) {
  std::vector<std::uint32_t> segments;
  for (const auto& [segment, entry] : live_->all())
    segments.push_back(segment);
  for (const std::uint32_t segment : segments) {
    if (withhold) live_->withhold(segment);
    const SegmentState state = live_->state(segment);
    if (has_writer(state) && live_->table().writer(segment).token != 0) {
      quarantine(segment);
      continue;
    }
    const bool has_blobs = live_->at(segment).ranges.has_blobs();
    if (has_writer(state) || (has_blobs && state == SegmentState::kFree)) live_->end_lease(segment);
    if (!withhold) release(segment);
  }
}

// Exactly what its writer had leased is not recorded, only within which bounds: everything free there counts as leased
// until the writer reports. Ranges without pages were given back before, so nobody uses them.
void SegmentAdopter::quarantine(std::uint32_t segment) {
  live_->quarantine(segment);
  retire_holes(segment, take_holes(segment));
  live_->ranges(segment).lease_all_within(live_->table().leases(segment));
}

RangeList SegmentAdopter::take_holes(std::uint32_t segment) {
  auto match = holes_.extract(segment);
  return match ? std::move(match.mapped()) : RangeList();
}

void SegmentAdopter::retire_holes(std::uint32_t segment, const RangeList& holes) {
  for (const auto& [offset, length] : holes)
    static_cast<void>(live_->retire(segment, offset, length));  // refused: part of a sealed blob
}

void SegmentAdopter::release(std::uint32_t segment) {
  if (const RangeList holes = take_holes(segment); !holes.empty()) {
    if (!live_->at(segment).ranges.has_blobs()) return live_->drop(segment);
    retire_holes(segment, holes);
    reclaimer_->retire_free_ranges(segment, UINT64_MAX);
  }
  live_->release_if_empty(segment);
}

void SegmentAdopter::release_withheld() {
  for (const std::uint32_t segment : live_->release_withheld()) {
    const SegmentState state = live_->state(segment);
    if (state == SegmentState::kFree || state == SegmentState::kReturned) release(segment);
  }
}

}  // namespace entrepot
