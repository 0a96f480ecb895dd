// Segment figures: what the segments hold and what could be had, for the status, error messages and decisions outside
// of this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shm/memory_budget.h"
#include "shm/record_arena.h"
#include "store/memory/live_segments.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_reclaimer.h"
#include "store/memory/segment_sizes.h"

namespace entrepot {

// Reads only; every figure is computed anew. Guarded by the daemon's thread.
class SegmentFigures {
 public:
  // They must outlive it.
  SegmentFigures(const LiveSegments& live, const SegmentProvisioning& provisioning, const SegmentReclaimer& reclaimer,
                 const SegmentSizes& sizes, const MemoryBudget& budget, const RecordArena& records);

  [[nodiscard]] std::uint64_t fixed_bytes() const;
  [[nodiscard]] std::uint64_t record_bytes() const;
  [[nodiscard]] std::uint64_t leased_by(std::uint32_t client) const;
  [[nodiscard]] std::map<std::uint32_t, std::uint64_t> leased_by_client() const;  // leased bytes by writer
  [[nodiscard]] std::uint64_t warm_bytes() const;    // free segments, and free ranges in others
  [[nodiscard]] std::uint64_t in_use_bytes() const;  // of segments that are neither free nor made ahead of demand
  [[nodiscard]] std::uint64_t provisioning_bytes() const;
  [[nodiscard]] std::uint64_t largest_free() const;
  [[nodiscard]] std::uint64_t largest_extent() const;  // contiguous free range, in any segment
  [[nodiscard]] std::uint64_t largest_lease() const;  // to a new client, at once; holes elsewhere are given back for it
  [[nodiscard]] const char* memory_kind() const;      // of the latest segment
  struct Summary {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::map<std::string, Summary> summary() const;  // by state
  [[nodiscard]] std::string describe_pressure() const;

 private:
  [[nodiscard]] std::uint64_t largest_new() const;  // segment that could be made at once

  // Guarded by the daemon's thread.
  const LiveSegments* live_;
  const SegmentProvisioning* provisioning_;
  const SegmentReclaimer* reclaimer_;
  const SegmentSizes* sizes_;
  const MemoryBudget* budget_;
  const RecordArena* records_;
};

}  // namespace entrepot
