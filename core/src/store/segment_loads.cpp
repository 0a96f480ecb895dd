// Memory for reloading spilled blobs: ranges that the daemon fills itself.
#include <algorithm>
#include <utility>

#include "os/memfd.h"
#include "store/segment_pool.h"

namespace entrepot {

std::optional<BlobPlace> SegmentPool::place_in(std::uint32_t segment, std::uint64_t bytes) {
  Info& entry = info(segment);
  const bool own_pages = bytes >= kOwnPagesBytes;
  const std::uint64_t extent = own_pages ? round_up(bytes, os::page_bytes()) : round_up(bytes, kBlobAlign);
  const auto offset = entry.extents.allocate(extent, own_pages ? os::page_bytes() : kBlobAlign);
  if (!offset) return std::nullopt;
  if (table_.state(segment) == SegmentState::kFree) {
    table_.set_state(segment, SegmentState::kReturned);
    ++segments_taken_;
  }
  table_.forget_writer(segment);  // it may hold anybody's data now: nobody may lease it again
  ++entry.blobs;
  blob_bytes_ += extent;
  return BlobPlace{segment, *offset, bytes, table_.generation(segment)};
}

Result<std::optional<BlobPlace>> SegmentPool::place_for_load(std::uint64_t bytes, LeaseWait& wait) {
  if (wait.segment != kNoSegment) {
    if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<BlobPlace>();
    info(wait.segment).reserved = false;
    if (auto place = place_in(std::exchange(wait.segment, kNoSegment), bytes)) return place;
  }
  // Best fit among segments without a writer; then the smallest free segment that is large enough.
  for (const SegmentState wanted : {SegmentState::kReturned, SegmentState::kFree}) {
    std::uint32_t best = kNoSegment;
    for (const auto& [segment, entry] : infos_) {
      const bool usable = wanted == SegmentState::kFree ? is_free(segment) : table_.state(segment) == wanted;
      if (!usable || entry->withheld || entry->extents.largest_free() < round_up(bytes, os::page_bytes())) continue;
      if (best == kNoSegment || entry->extents.largest_free() < info(best).extents.largest_free()) best = segment;
    }
    if (best == kNoSegment) continue;
    if (auto place = place_in(best, bytes)) return place;
  }
  const std::uint64_t least = round_up(bytes, kSegmentAlign);
  std::uint64_t size = std::max(least, small_);
  if (available_bytes() < size && !make_room(size)) {
    size = least;
    if (available_bytes() < size && !make_room(size)) return std::optional<BlobPlace>();
  }
  ASSIGN_OR_RETURN(wait.segment, start_segment(size, true));
  if (wait.segment == kNoSegment) return place_for_load(bytes, wait);
  info(wait.segment).reserved = true;
  if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<BlobPlace>();
  return place_for_load(bytes, wait);  // the source answered at once
}

}  // namespace entrepot
