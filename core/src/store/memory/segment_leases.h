// Segment leases: gives clients ranges to write to, and takes them back.
//
// The states of a range are in segment_ranges.h, those of a segment in shm/segment_table.h. A lease is answered
//
//   from the client's own segments, if one has room ──▶ from a free segment of about the right size
//     ──▶ from one that is being made for a request that is gone, once it is made
//     ──▶ if there is room for a new segment: from that, once it is made
//     ──▶ if not: from any free segment, or any room in its own; if there is none, what is free elsewhere is given back
//         for a new segment
//     ──▶ not at all: the caller evicts something and asks again
//
// The table entry is written before a lease is answered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "shm/segment_table.h"
#include "store/memory/live_segments.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_reclaimer.h"
#include "store/memory/segment_sizes.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SegmentLeases {
 public:
  // They must outlive it.
  SegmentLeases(LiveSegments& live, SegmentProvisioning& provisioning, SegmentReclaimer& reclaimer,
                const SegmentSizes& sizes);

  // Returns a range, or none: wait (a segment may be in preparation for `wait`). kStoreFull if waiting cannot help.
  [[nodiscard]] Result<std::optional<LeaseGrant>> lease(const SegmentWriterRef& client, std::uint64_t min_bytes,
                                                        std::uint64_t want_bytes, LeaseWait& wait);
  // The same for one value, from a range in the client's own segments that is too small for the usual granule: the hole
  // that a deleted value of its size has left, or what is free between a batch's unsealed values.
  [[nodiscard]] std::optional<LeaseGrant> lease_fragment(const SegmentWriterRef& client, std::uint64_t min_bytes);
  // kInvalidArgument unless the whole range is leased to the client. `done`: the client has unmapped the segment.
  [[nodiscard]] Status unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                               bool done);
  [[nodiscard]] Status check_leased(std::uint32_t client, std::uint32_t segment, std::uint64_t offset,
                                    std::uint64_t length) const;

  void client_disconnected(std::uint32_t client);  // its leased ranges are returned; it may still map its segments
  void client_died(std::uint32_t client);          // its segments become available once they are empty
  // After a reconnect: makes exactly these ranges leased to the client. Leaves out those that cannot be. Null: it does
  // not report any.
  void restore(const SegmentWriterRef& client, const std::vector<ReportedLease>* leases);

 private:
  std::optional<LeaseGrant> lease_from_own_segments(const SegmentWriterRef& client, std::uint64_t min_length,
                                                    std::uint64_t want, std::uint64_t granule = kLeaseGranule);
  std::optional<LeaseGrant> lease_free_segment(const SegmentWriterRef& client, std::uint64_t min_length,
                                               std::uint64_t want, std::uint64_t largest);
  LeaseGrant lease_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t want);
  LeaseGrant grant_in_own_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t offset,
                                  std::uint64_t length);
  LeaseGrant grant(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  void end_lease(std::uint32_t segment);

  // Guarded by the daemon's thread.
  LiveSegments* live_;
  SegmentProvisioning* provisioning_;
  SegmentReclaimer* reclaimer_;
  const SegmentSizes* sizes_;
};

}  // namespace entrepot
