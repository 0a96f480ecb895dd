// Memory for reloading spilled blobs: ranges that the daemon fills itself.
#include <algorithm>
#include <utility>

#include "os/memfd.h"
#include "store/memory/segment_pool.h"

namespace entrepot {

std::optional<BlobLocation> SegmentPool::allocate_blob_in(std::uint32_t segment, std::uint64_t bytes) {
  SegmentInfo& entry = info(segment);
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
  return BlobLocation{segment, *offset, bytes, table_.generation(segment)};
}

Result<std::optional<BlobLocation>> SegmentPool::allocate_for_load(std::uint64_t bytes, LeaseWait& wait) {
  if (wait.segment != kNoSegment) {
    if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<BlobLocation>();
    info(wait.segment).reserved = false;
    if (auto place = allocate_blob_in(std::exchange(wait.segment, kNoSegment), bytes)) return place;
  }
  // Best fit among segments without a writer; then the smallest free segment that is large enough.
  for (const SegmentState target_state : {SegmentState::kReturned, SegmentState::kFree}) {
    std::uint32_t best = kNoSegment;
    for (const auto& [segment, entry] : infos_) {
      const bool usable =
          target_state == SegmentState::kFree ? is_free(segment) : table_.state(segment) == target_state;
      if (!usable || entry->withheld || entry->extents.largest_free() < round_up(bytes, os::page_bytes())) continue;
      if (best == kNoSegment || entry->extents.largest_free() < info(best).extents.largest_free()) best = segment;
    }
    if (best == kNoSegment) continue;
    if (auto place = allocate_blob_in(best, bytes)) return place;
  }
  const std::uint64_t min_length = round_up(bytes, kSegmentAlign);
  std::uint64_t size = std::max(min_length, small_);
  if (available_bytes() < size && !reclaim(size)) {
    size = min_length;
    if (available_bytes() < size && !reclaim(size)) return std::optional<BlobLocation>();
  }
  ASSIGN_OR_RETURN(wait.segment, start_segment(size, true));
  if (wait.segment == kNoSegment) return allocate_for_load(bytes, wait);
  info(wait.segment).reserved = true;
  if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<BlobLocation>();
  return allocate_for_load(bytes, wait);  // the source answered at once
}

}  // namespace entrepot
