#include "store/memory/segment_reclaimer.h"

#include <gtest/gtest.h>

#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

// Refuses to take pages back.
class UnpunchableSource : public FakeSource {
 public:
  [[nodiscard]] Status punch(std::uint32_t, std::uint64_t, std::uint64_t) override {
    return Status(Code::kInternal, "no holes here");
  }
};

struct Reclaimer : ::testing::Test {
  std::uint32_t make_leased(std::uint64_t bytes) {
    const std::uint32_t segment = parts.make(bytes);
    live.lease(segment, kWriter);
    return segment;
  }
  void use_up() {
    while (parts.provisioning.available_bytes() != 0) {
      const std::uint32_t segment = make_leased(2 * kMiB);
      EXPECT_TRUE(live.ranges(segment).lease(2 * kMiB).has_value());
    }
  }

  SurvivingMemory machine;
  SegmentParts parts{machine, 32 * kMiB};
  LiveSegments& live = parts.live;
  SegmentReclaimer& reclaimer = parts.reclaimer;
};

TEST_F(Reclaimer, TouchesNothingWhileThereIsRoom) {
  const std::uint32_t free = parts.make(8 * kMiB);
  EXPECT_TRUE(reclaimer.reclaim(24 * kMiB));
  EXPECT_TRUE(live.contains(free));
}

TEST_F(Reclaimer, TouchesNothingThatWouldNotBeEnough) {
  const std::uint32_t free = parts.make(8 * kMiB);
  use_up();
  EXPECT_EQ(reclaimer.reclaimable_bytes(), 8 * kMiB);
  EXPECT_FALSE(reclaimer.reclaim(10 * kMiB));
  EXPECT_TRUE(live.contains(free));
}

TEST_F(Reclaimer, TakesTheSmallestFreeSegmentThatSuffices) {
  const std::uint32_t large = parts.make(10 * kMiB);
  const std::uint32_t middle = parts.make(6 * kMiB);
  const std::uint32_t small = parts.make(2 * kMiB);
  use_up();
  EXPECT_TRUE(reclaimer.reclaim(4 * kMiB));
  EXPECT_TRUE(live.contains(large));
  EXPECT_FALSE(live.contains(middle));
  EXPECT_TRUE(live.contains(small));
}

TEST_F(Reclaimer, TakesFreeSegmentsFirstThenEmptyOnesOfAWriterThenPages) {
  const std::uint32_t holding = parts.make_holding(8 * kMiB, 4 * kMiB, kWriter);
  const std::uint32_t empty = make_leased(4 * kMiB);
  const std::uint32_t free = parts.make(4 * kMiB);
  use_up();
  EXPECT_EQ(reclaimer.reclaimable_bytes(), 12 * kMiB);
  EXPECT_TRUE(reclaimer.reclaim(4 * kMiB));
  EXPECT_FALSE(live.contains(free));
  EXPECT_TRUE(live.contains(empty));
  EXPECT_TRUE(reclaimer.reclaim(8 * kMiB));
  EXPECT_FALSE(live.contains(empty));
  EXPECT_EQ(machine.source.punched, 0U);
  EXPECT_TRUE(reclaimer.reclaim(12 * kMiB));
  EXPECT_EQ(machine.source.punched, 4 * kMiB);
  EXPECT_EQ(live.at(holding).ranges.committed_bytes(), 4 * kMiB);
  EXPECT_EQ(live.committed_bytes(), machine.source.in_use());
}

TEST_F(Reclaimer, LeavesWhatIsReservedOrWithheld) {
  const std::uint32_t reserved = parts.make(4 * kMiB);
  live.reserve(reserved);
  const std::uint32_t withheld = parts.make(4 * kMiB);
  live.withhold(withheld);
  const std::uint32_t holding = parts.make_holding(4 * kMiB, kMiB, kWriter);
  live.withhold(holding);
  use_up();
  EXPECT_EQ(reclaimer.reclaimable_bytes(), 0U);
  EXPECT_FALSE(reclaimer.reclaim(kMiB));
  reclaimer.retire_free_ranges(holding, UINT64_MAX);
  EXPECT_EQ(machine.source.punched, 0U);
}

TEST_F(Reclaimer, RetiresNoMoreRangesThanAreNeeded) {
  const std::uint32_t segment = make_leased(8 * kMiB);
  for (const std::uint64_t offset : {kMiB, 3 * kMiB, 5 * kMiB})
    ASSERT_TRUE(live.ranges(segment).adopt_blob(offset, kMiB).is_ok());
  reclaimer.retire_free_ranges(segment, kMiB + 1);
  EXPECT_EQ(machine.source.punched, 2 * kMiB) << "two of four free ranges";
}

TEST(ReclaimerWithoutHoles, PagesThatCannotBeReturnedStayUsable) {
  SurvivingMemory machine;
  SegmentParts parts(machine);
  UnpunchableSource source;
  SegmentReclaimer reclaimer(parts.live, parts.provisioning, parts.sizes, source, parts.records);
  const std::uint32_t segment = parts.make_holding(4 * kMiB, kMiB, kWriter);
  reclaimer.retire_free_ranges(segment, UINT64_MAX);
  parts.live.orphan(segment);
  EXPECT_FALSE(reclaimer.release_holes(UINT64_MAX)) << "or this would be tried for ever";
  EXPECT_EQ(parts.live.at(segment).ranges.retired_bytes(), 0U);
  EXPECT_EQ(parts.live.at(segment).ranges.largest_free(), 3 * kMiB);
  EXPECT_EQ(parts.live.committed_bytes(), 4 * kMiB);
}

TEST_F(Reclaimer, HolesOfAWriterThatIsGoneGoBackInSteps) {
  const std::uint32_t segment = parts.make_holding(16 * kMiB, 4 * kMiB, kWriter);
  EXPECT_FALSE(reclaimer.release_holes(UINT64_MAX));
  EXPECT_EQ(machine.source.punched, 0U) << "its writer may lease them again";
  live.orphan(segment);
  EXPECT_TRUE(reclaimer.release_holes(11 * kMiB));
  EXPECT_EQ(machine.source.punched, 11 * kMiB);
  EXPECT_FALSE(reclaimer.release_holes(11 * kMiB)) << "the rest, although it is a small part of the segment";
  EXPECT_EQ(machine.source.punched, 12 * kMiB);
  EXPECT_EQ(live.committed_bytes(), 4 * kMiB);
  EXPECT_EQ(live.committed_bytes(), machine.source.in_use());
  EXPECT_TRUE(live.ranges(segment).free_blob(0, 4 * kMiB).is_ok());
  live.release_if_empty(segment);
  EXPECT_FALSE(live.contains(segment)) << "it has holes";
}

TEST_F(Reclaimer, SmallHolesAndThoseForLoadsStay) {
  const std::uint32_t nearly_full = parts.make_holding(16 * kMiB, 15 * kMiB, kWriter);
  live.orphan(nearly_full);
  const std::uint32_t for_loads = parts.make_holding(8 * kMiB, kMiB, kWriter);
  live.orphan(for_loads);
  live.take_for_loads(for_loads);
  const std::uint32_t withheld = parts.make_holding(4 * kMiB, kMiB, kWriter);
  live.orphan(withheld);
  live.withhold(withheld);
  EXPECT_FALSE(reclaimer.release_holes(UINT64_MAX));
  EXPECT_EQ(machine.source.punched, 0U);
}

TEST_F(Reclaimer, OfTheSurplusWhatWasUsedLatelyIsKept) {
  using Surplus = SegmentReclaimer::Surplus;
  const std::uint32_t large = parts.make(8 * kMiB);
  const std::uint32_t small = parts.make(2 * kMiB);
  EXPECT_EQ(reclaimer.release_surplus(64 * kMiB, 10 * kMiB), Surplus::kKept);
  EXPECT_TRUE(live.contains(large) && live.contains(small));
  EXPECT_EQ(reclaimer.release_surplus(64 * kMiB, 8 * kMiB), Surplus::kKept);
  EXPECT_TRUE(live.contains(large));
  EXPECT_FALSE(live.contains(small));
  EXPECT_EQ(reclaimer.release_surplus(64 * kMiB, 0), Surplus::kNone);
  EXPECT_FALSE(live.contains(large));
}

TEST_F(Reclaimer, SurplusGoesAFewSegmentsAtATimeButAlwaysOne) {
  using Surplus = SegmentReclaimer::Surplus;
  const std::uint32_t large = parts.make(8 * kMiB);
  const std::uint32_t middle = parts.make(4 * kMiB);
  const std::uint32_t small = parts.make(2 * kMiB);
  const std::uint32_t leased = make_leased(4 * kMiB);
  EXPECT_EQ(reclaimer.release_surplus(kMiB, 0), Surplus::kMore);
  EXPECT_FALSE(live.contains(large));
  EXPECT_TRUE(live.contains(middle));
  EXPECT_EQ(reclaimer.release_surplus(6 * kMiB, 0), Surplus::kNone);
  EXPECT_FALSE(live.contains(middle));
  EXPECT_FALSE(live.contains(small));
  EXPECT_TRUE(live.contains(leased));
  EXPECT_EQ(reclaimer.release_surplus(6 * kMiB, 0), Surplus::kNone);
}

}  // namespace
}  // namespace entrepot::testing
