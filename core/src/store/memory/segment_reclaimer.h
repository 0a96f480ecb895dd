// Segment reclaimer: returns memory that nobody needs to the machine, as whole segments or as pages of one.
//
// Under pressure, the cheapest first: free segments, then empty segments whose writer could still use them, then free
// ranges of segments that hold something. In quiet times, free segments beyond what is kept warm or was used lately,
// and what a writer that is gone has left free between its values.
#pragma once

#include <cstdint>

#include "shm/record_arena.h"
#include "store/memory/live_segments.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_sizes.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SegmentReclaimer {
 public:
  // They must outlive it.
  SegmentReclaimer(LiveSegments& live, const SegmentProvisioning& provisioning, const SegmentSizes& sizes,
                   MemorySource& source, RecordArena& records);

  // Makes so many bytes available in the budget and returns true; frees no segment if all of it together would not be
  // enough.
  [[nodiscard]] bool reclaim(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t reclaimable_bytes() const;      // upper bound, without the record arena
  enum class Surplus : std::uint8_t { kNone, kKept, kMore };  // what is left: none, only what was used lately, or more
  // Gives back surplus segments, except for `recent_bytes`: at least one if there are any, otherwise at most
  // `max_bytes`.
  Surplus release_surplus(std::uint64_t max_bytes, std::uint64_t recent_bytes);
  // Returns pages that are free in segments that hold something and whose writer is gone, where they are a large part of
  // the segment: no lease could use them. Stops at `max_bytes`; returns whether there are more.
  [[nodiscard]] bool release_holes(std::uint64_t max_bytes);
  // Returns pages of the segment's free ranges, one range after the other, until `enough` bytes are returned.
  void retire_free_ranges(std::uint32_t segment, std::uint64_t enough);

 private:
  // Whether it could be returned.
  [[nodiscard]] bool retire(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  void drop_segments(std::uint64_t bytes, bool also_leased);  // until so many bytes are available

  // Guarded by the daemon's thread.
  LiveSegments* live_;
  const SegmentProvisioning* provisioning_;
  const SegmentSizes* sizes_;
  MemorySource* source_;
  RecordArena* records_;
};

}  // namespace entrepot
