#include "store/memory/segment_reclaimer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/align.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

// A segment with holes is not used again once it is empty. Below this share, that costs more than the holes.
constexpr std::uint64_t kHoleShare = 8;

}  // namespace

SegmentReclaimer::SegmentReclaimer(LiveSegments& live, const SegmentProvisioning& provisioning,
                                   const SegmentSizes& sizes, MemorySource& source, RecordArena& records)
    : live_(&live), provisioning_(&provisioning), sizes_(&sizes), source_(&source), records_(&records) {}

std::uint64_t SegmentReclaimer::reclaimable_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    const SegmentState state = live_->state(segment);
    if (live_->is_droppable(segment, entry)) {
      bytes += entry.ranges.committed_bytes();
    } else if (!entry.withheld && (state == SegmentState::kReturned || has_writer(state))) {
      for (const auto& [offset, length] : entry.ranges.free_pages())
        bytes += length;
    }
  }
  return bytes;
}

bool SegmentReclaimer::reclaim(std::uint64_t bytes) {
  if (provisioning_->available_bytes() >= bytes) return true;
  const Result<std::uint64_t> trimmed = records_->trim();
  if (!trimmed.is_ok()) log_warning("record arena: ", trimmed.status().to_string());
  if (provisioning_->available_bytes() + reclaimable_bytes() < bytes) return false;

  for (const bool also_leased : {false, true})
    drop_segments(bytes, also_leased);
  for (const SegmentState state : {SegmentState::kReturned, SegmentState::kLeased, SegmentState::kQuarantined}) {
    for (const auto& [segment, entry] : live_->all()) {
      const std::uint64_t available = provisioning_->available_bytes();
      if (available >= bytes) return true;
      if (live_->state(segment) == state) retire_free_ranges(segment, bytes - available);
    }
  }
  return provisioning_->available_bytes() >= bytes;
}

void SegmentReclaimer::drop_segments(std::uint64_t bytes, bool also_leased) {
  while (provisioning_->available_bytes() < bytes) {
    const std::uint64_t missing = bytes - provisioning_->available_bytes();
    std::uint32_t best = kNoSegment;
    for (const auto& [segment, entry] : live_->all()) {
      if (!(also_leased ? live_->is_droppable(segment, entry) : live_->is_spare(segment, entry))) continue;
      if (best == kNoSegment || fits_better(entry.ranges.bytes(), live_->at(best).ranges.bytes(), missing))
        best = segment;
    }
    if (best == kNoSegment) return;
    live_->drop(best);
  }
}

void SegmentReclaimer::retire_free_ranges(std::uint32_t segment, std::uint64_t enough) {
  if (live_->at(segment).withheld) return;
  std::uint64_t retired_bytes = 0;
  for (const auto& [offset, length] : live_->at(segment).ranges.free_pages()) {
    if (retired_bytes >= enough || !retire(segment, offset, length)) return;
    retired_bytes += length;
  }
}

bool SegmentReclaimer::retire(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  const Status status = source_->punch(segment, offset, length);
  if (!status.is_ok()) {
    log_warning("cannot return memory of segment ", segment, ": ", status.to_string());
    return false;
  }
  const Status retired = live_->retire(segment, offset, length);
  if (!retired.is_ok()) log_error("segment ", segment, ": ", retired.to_string());
  return retired.is_ok();
}

bool SegmentReclaimer::release_holes(std::uint64_t max_bytes) {
  std::uint64_t retired_bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (!entry.orphaned || entry.withheld || live_->state(segment) != SegmentState::kReturned) continue;
    const RangeList holes = entry.ranges.free_pages();
    std::uint64_t hole_bytes = 0;
    for (const auto& [offset, length] : holes)
      hole_bytes += length;
    // What was begun is finished: the segment is not used again anyway.
    if (entry.ranges.retired_bytes() == 0 && hole_bytes * kHoleShare < entry.ranges.bytes()) continue;
    for (const auto& [offset, length] : holes) {
      if (retired_bytes >= max_bytes) return true;
      const std::uint64_t piece = std::min(length, round_up(max_bytes - retired_bytes, os::page_bytes()));
      if (!retire(segment, offset, piece)) return false;
      retired_bytes += piece;
      if (piece < length) return true;
    }
  }
  return false;
}

SegmentReclaimer::Surplus SegmentReclaimer::release_surplus(std::uint64_t max_bytes, std::uint64_t recent_bytes) {
  std::vector<FreeSegment> free_segments;
  for (const auto& [segment, entry] : live_->all()) {
    if (!live_->is_spare(segment, entry)) continue;
    free_segments.push_back(
        {segment, entry.ranges.bytes(), live_->table().kind(segment), !live_->table().is_isolated(segment)});
  }
  std::uint64_t dropped = 0;
  std::size_t left = find_surplus(*sizes_, free_segments).size();
  for (const FreeSegment& surplus : find_surplus(*sizes_, std::move(free_segments), recent_bytes)) {
    if (dropped != 0 && dropped + surplus.bytes > max_bytes) return Surplus::kMore;
    dropped += surplus.bytes;
    live_->drop(surplus.segment);
    left -= std::min<std::size_t>(left, 1);
  }
  return left == 0 ? Surplus::kNone : Surplus::kKept;
}

}  // namespace entrepot
