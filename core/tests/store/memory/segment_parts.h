// The classes of store/memory as SegmentPool holds them, without a store around them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "shm/segment_table.h"
#include "store/harness.h"
#include "store/memory/live_segments.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_reclaimer.h"
#include "store/memory/segment_sizes.h"

namespace entrepot::testing {

inline constexpr SegmentWriterRef kWriter{3, 33};

// What outlives a daemon.
struct SurvivingMemory {
  ControlMemory control =
      ControlMemory::create_private(numbered_instance(1), {{RegionKind::kSegments, 256}, {RegionKind::kRecords, kMiB}})
          .take();
  FakeSource source;
};

// One daemon's classes that the others are built on. Small segments are of 2 MiB, up to a capacity of 63 MiB.
struct SegmentParts {
  explicit SegmentParts(SurvivingMemory& machine, std::uint64_t capacity = 32 * kMiB, std::uint64_t warm = 0)
      : source(machine.source),
        budget(capacity),
        records(machine.control),
        sizes(capacity, warm),
        live(machine.control, source, budget),
        provisioning(live, source, budget, sizes),
        reclaimer(live, provisioning, sizes, source, records) {
    budget.enforce();
    source.provisioning = &provisioning;
  }

  // A free segment.
  std::uint32_t make(std::uint64_t bytes) {
    LeaseWait wait;
    const Status status = provisioning.start(bytes, wait);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return provisioning.take(wait);
  }
  // A segment that its writer returned while `bytes` of it are a blob, at the beginning.
  std::uint32_t make_holding(std::uint64_t segment_bytes, std::uint64_t bytes, const SegmentWriterRef& writer) {
    const std::uint32_t segment = make(segment_bytes);
    live.lease(segment, writer);
    EXPECT_TRUE(live.ranges(segment).lease_exactly(0, bytes).is_ok());
    live.ranges(segment).seal(0, bytes);
    live.end_lease(segment);
    return segment;
  }
  [[nodiscard]] bool is_free(std::uint32_t segment) const { return live.is_free(segment, live.at(segment)); }

  FakeSource& source;
  MemoryBudget budget;
  RecordArena records;
  SegmentSizes sizes;
  LiveSegments live;
  SegmentProvisioning provisioning;
  SegmentReclaimer reclaimer;
};

}  // namespace entrepot::testing
