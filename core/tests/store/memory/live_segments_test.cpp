#include "store/memory/live_segments.h"

#include <gtest/gtest.h>

#include <vector>

#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

constexpr SegmentWriterRef kOther{4, 44};
constexpr SegmentWriterRef kSameClientLater{3, 34};

struct Live : ::testing::Test {
  std::uint32_t add_ready(std::uint64_t bytes = 2 * kMiB) {
    const Result<std::uint32_t> added = live.add(bytes, false);
    EXPECT_TRUE(added.is_ok());
    machine.source.files[{*added, live.table().generation(*added)}] = bytes;
    live.set_ready(*added, MemoryKind::kSmallPages);
    return *added;
  }

  SurvivingMemory machine;
  SegmentParts parts{machine, 8 * kMiB};
  LiveSegments& live = parts.live;
};

TEST_F(Live, ASegmentIsPaidForBeforeItExistsAndUntilItIsDropped) {
  const Result<std::uint32_t> added = live.add(6 * kMiB, false);
  ASSERT_TRUE(added.is_ok());
  EXPECT_EQ(parts.budget.granted(BudgetItem::kSegments), 6 * kMiB);
  EXPECT_EQ(live.committed_bytes(), 6 * kMiB);
  EXPECT_FALSE(live.is_mappable(*added));
  EXPECT_FALSE(parts.is_free(*added));
  live.set_ready(*added, MemoryKind::kHugePages);
  EXPECT_TRUE(live.is_mappable(*added));
  EXPECT_TRUE(parts.is_free(*added));
  const std::uint32_t generation = live.table().generation(*added);
  live.drop(*added);
  EXPECT_EQ(live.find(*added), nullptr);
  EXPECT_FALSE(live.contains(*added));
  EXPECT_EQ(parts.budget.granted(BudgetItem::kSegments), 0U);
  EXPECT_EQ(live.committed_bytes(), 0U);
  ASSERT_EQ(add_ready(), *added);
  EXPECT_GT(live.table().generation(*added), generation);
}

TEST_F(Live, WhatTheBudgetRefusesIsNotAdded) {
  add_ready(6 * kMiB);
  EXPECT_EQ(live.add(4 * kMiB, true).code(), Code::kStoreFull);
  EXPECT_EQ(live.all().size(), 1U);
  EXPECT_EQ(live.table().live(), 1U);
  EXPECT_EQ(live.committed_bytes(), 6 * kMiB);
  EXPECT_EQ(live.taken(), 0U);
}

TEST_F(Live, AnInvalidSizeCostsNothing) {
  EXPECT_EQ(live.add(kMiB + 1, true).code(), Code::kInvalidArgument);
  EXPECT_EQ(parts.budget.granted(BudgetItem::kSegments), 0U);
}

TEST_F(Live, ASegmentHasOneWriterAndItsTokenCounts) {
  const std::uint32_t segment = add_ready();
  EXPECT_FALSE(live.may_write_again(segment, kWriter));
  live.lease(segment, kWriter);
  EXPECT_FALSE(parts.is_free(segment));
  EXPECT_TRUE(live.is_writer(segment, kWriter.client));
  EXPECT_FALSE(live.is_writer(segment, kOther.client));
  EXPECT_TRUE(live.may_write_again(segment, kWriter));
  EXPECT_FALSE(live.may_write_again(segment, kOther));
  EXPECT_FALSE(live.may_write_again(segment, kSameClientLater));
}

TEST_F(Live, AReturnedSegmentGoesBackToItsLastWriterUntilThatIsForgotten) {
  const std::uint32_t segment = add_ready();
  live.lease(segment, kWriter);
  ASSERT_TRUE(live.ranges(segment).lease(kMiB).has_value());
  live.ranges(segment).seal(0, kMiB);
  live.end_lease(segment);
  EXPECT_EQ(live.state(segment), SegmentState::kReturned);
  EXPECT_FALSE(live.is_writer(segment, kWriter.client));
  EXPECT_TRUE(live.may_write_again(segment, kWriter));
  live.orphan(segment);
  EXPECT_FALSE(live.may_write_again(segment, kWriter));
  live.release_if_empty(segment);
  EXPECT_EQ(live.state(segment), SegmentState::kReturned) << "it holds a blob";
  ASSERT_TRUE(live.ranges(segment).free_blob(0, kMiB).is_ok());
  live.release_if_empty(segment);
  EXPECT_TRUE(parts.is_free(segment));
}

TEST_F(Live, AnEmptySegmentStaysWithAWriterThatMayUseIt) {
  const std::uint32_t segment = add_ready();
  live.lease(segment, kWriter);
  live.release_if_empty(segment);
  EXPECT_EQ(live.state(segment), SegmentState::kLeased);
  EXPECT_TRUE(live.is_droppable(segment, live.at(segment))) << "under pressure, it need not keep it";
  live.end_lease(segment);
  EXPECT_TRUE(parts.is_free(segment));
}

TEST_F(Live, TheDescriptorIsSentOncePerWriter) {
  const std::uint32_t segment = add_ready();
  live.lease(segment, kWriter);
  EXPECT_FALSE(live.mark_descriptor_sent(segment));
  EXPECT_TRUE(live.mark_descriptor_sent(segment));
  live.resume_lease(segment);
  EXPECT_FALSE(live.mark_descriptor_sent(segment));
  live.end_lease(segment);
  live.lease(segment, kOther);
  EXPECT_FALSE(live.mark_descriptor_sent(segment));
}

TEST_F(Live, AReservedSegmentIsForOneRequestOnly) {
  const std::uint32_t segment = add_ready();
  live.reserve(segment);
  EXPECT_FALSE(parts.is_free(segment));
  EXPECT_FALSE(live.is_droppable(segment, live.at(segment)));
  const std::uint64_t freed = live.freed();
  live.offer(segment);
  EXPECT_TRUE(parts.is_free(segment));
  EXPECT_EQ(live.freed(), freed + 1);
}

TEST_F(Live, AWithheldSegmentIsForNobody) {
  const std::uint32_t segment = add_ready();
  const std::uint32_t other = add_ready();
  live.withhold(segment);
  EXPECT_FALSE(parts.is_free(segment));
  EXPECT_FALSE(live.is_droppable(segment, live.at(segment)));
  EXPECT_TRUE(parts.is_free(other));
  EXPECT_EQ(live.release_withheld(), std::vector<std::uint32_t>{segment});
  EXPECT_TRUE(parts.is_free(segment));
  EXPECT_TRUE(live.release_withheld().empty());
}

TEST_F(Live, RetiredPagesArePaidBackAndTheSegmentGoesWithItsLastBlob) {
  const std::uint32_t segment = parts.make_holding(4 * kMiB, kMiB, kWriter);
  ASSERT_TRUE(live.retire(segment, kMiB, 3 * kMiB).is_ok());
  EXPECT_EQ(live.retire(segment, 0, kMiB).code(), Code::kCorruptData) << "a blob is there";
  EXPECT_EQ(live.committed_bytes(), kMiB);
  EXPECT_EQ(parts.budget.granted(BudgetItem::kSegments), kMiB);
  ASSERT_TRUE(live.ranges(segment).free_blob(0, kMiB).is_ok());
  live.release_if_empty(segment);
  EXPECT_FALSE(live.contains(segment));
  EXPECT_EQ(live.committed_bytes(), 0U);
  EXPECT_EQ(parts.budget.granted(BudgetItem::kSegments), 0U);
  EXPECT_EQ(machine.source.in_use(), 0U);
}

TEST_F(Live, TheTableKnowsTheBoundsOfAllLeases) {
  const std::uint32_t segment = add_ready();
  live.lease(segment, kWriter);
  ASSERT_TRUE(live.ranges(segment).lease_exactly(2 * kLeaseGranule, kLeaseGranule).is_ok());
  ASSERT_TRUE(live.ranges(segment).lease_exactly(6 * kLeaseGranule, kLeaseGranule).is_ok());
  EXPECT_EQ(live.table().leases(segment).end, 0U) << "not before they are recorded";
  live.record_leases(segment);
  EXPECT_EQ(live.table().leases(segment).first, 2 * kLeaseGranule);
  EXPECT_EQ(live.table().leases(segment).end, 7 * kLeaseGranule);
  live.unlease_all(segment);
  live.record_leases(segment);
  EXPECT_EQ(live.table().leases(segment).end, 0U);
}

TEST_F(Live, CountsSegmentsThatWereTakenAndThatBecameFree) {
  const std::uint32_t segment = add_ready();
  EXPECT_EQ(live.taken(), 0U);
  EXPECT_EQ(live.freed(), 1U);
  live.lease(segment, kWriter);
  EXPECT_EQ(live.taken(), 1U);
  ASSERT_TRUE(live.ranges(segment).adopt_blob(0, kMiB).is_ok());
  live.end_lease(segment);
  live.lease(segment, kWriter);  // again, with its blob
  EXPECT_EQ(live.taken(), 1U);
  ASSERT_TRUE(live.ranges(segment).free_blob(0, kMiB).is_ok());
  live.end_lease(segment);
  live.release_if_empty(segment);
  EXPECT_EQ(live.freed(), 2U);
  live.take_for_loads(segment);
  EXPECT_EQ(live.taken(), 2U);
  EXPECT_EQ(live.state(segment), SegmentState::kReturned);
  ASSERT_TRUE(live.add(2 * kMiB, true).is_ok());
  EXPECT_EQ(live.taken(), 3U);
}

}  // namespace
}  // namespace entrepot::testing
