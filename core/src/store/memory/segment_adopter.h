// Segment adopter: takes over the segments of a daemon that died, from the segment table and the memory that exists.
//
// begin(), then every blob, then end():
//
//   provisioning, damaged, or its memory is gone ──▶ absent
//   had a writer ──▶ quarantined, until that writer reconnects or dies; what it may have leased stays leased
//   holds a blob ──▶ returned
//   holds nothing ──▶ free, or absent if some of its pages are gone
//
// If memory that nothing accounts for may be in use by a reader, what is free in these segments is withheld until
// release_withheld(): nobody gets a range of it, and no page of it is given back.
#pragma once

#include <cstdint>
#include <map>

#include "base/status.h"
#include "shm/blobs.h"
#include "store/memory/live_segments.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_ranges.h"
#include "store/memory/segment_reclaimer.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SegmentAdopter {
 public:
  // They must outlive it.
  SegmentAdopter(LiveSegments& live, SegmentReclaimer& reclaimer, MemorySource& source);

  [[nodiscard]] std::uint32_t begin();  // returns the number of damaged entries, and of those without memory
  [[nodiscard]] Status adopt_blob(const BlobLocation& place);
  void end(bool withhold);
  void release_withheld();

 private:
  void quarantine(std::uint32_t segment);
  void release(std::uint32_t segment);  // of a segment without a writer
  [[nodiscard]] RangeList take_holes(std::uint32_t segment);
  void retire_holes(std::uint32_t segment, const RangeList& holes);

  // Guarded by the daemon's thread.
  LiveSegments* live_;
  SegmentReclaimer* reclaimer_;
  MemorySource* source_;
  std::map<std::uint32_t, RangeList> holes_;  // pages that the memory lacks, by segment, until they are retired
};

}  // namespace entrepot
