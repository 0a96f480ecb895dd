// Load allocator: memory for reloading spilled blobs, which the daemon fills itself, in segments that no client may
// write.
//
// A range is taken from a segment that has no writer and holds something, else from a free segment, else from a new
// one, for which free memory elsewhere is given back if necessary.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm/blobs.h"
#include "store/memory/live_segments.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_reclaimer.h"
#include "store/memory/segment_sizes.h"

namespace entrepot {

// Guarded by the daemon's thread.
class LoadAllocator {
 public:
  // They must outlive it.
  LoadAllocator(LiveSegments& live, SegmentProvisioning& provisioning, SegmentReclaimer& reclaimer,
                const SegmentSizes& sizes);

  // Returns a blob's range, or none: wait (a segment may be in preparation for `wait`, or nothing is free).
  [[nodiscard]] Result<std::optional<BlobLocation>> allocate(std::uint64_t bytes, LeaseWait& wait);

 private:
  std::optional<BlobLocation> allocate_in(std::uint32_t segment, std::uint64_t bytes);
  [[nodiscard]] std::uint32_t best_fit(SegmentState state, std::uint64_t bytes) const;  // or kNoSegment

  // Guarded by the daemon's thread.
  LiveSegments* live_;
  SegmentProvisioning* provisioning_;
  SegmentReclaimer* reclaimer_;
  const SegmentSizes* sizes_;
};

}  // namespace entrepot
