#include "store/memory/segment_provisioning.h"

#include <gtest/gtest.h>

#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

struct Provisioning : ::testing::Test {
  explicit Provisioning(std::uint64_t warm = 0) : parts(machine, 32 * kMiB, warm) { source.at_once = false; }

  SurvivingMemory machine;
  FakeSource& source = machine.source;
  SegmentParts parts;
  SegmentProvisioning& provisioning = parts.provisioning;
};

TEST_F(Provisioning, ARequestWaitsUntilItsSegmentIsReadyAndTakesIt) {
  LeaseWait wait;
  EXPECT_FALSE(provisioning.is_under_way(wait));
  EXPECT_EQ(provisioning.take(wait), kNoSegment);
  ASSERT_TRUE(provisioning.start(4 * kMiB, wait).is_ok());
  ASSERT_EQ(source.waiting.size(), 1U);
  EXPECT_TRUE(source.waiting[0].urgent);
  EXPECT_TRUE(provisioning.is_under_way(wait));
  source.finish_all();
  EXPECT_FALSE(provisioning.is_under_way(wait));
  EXPECT_FALSE(parts.is_free(wait.segment)) << "it is for the request";
  const std::uint32_t segment = provisioning.take(wait);
  EXPECT_EQ(wait.segment, kNoSegment);
  EXPECT_TRUE(parts.is_free(segment));
  EXPECT_EQ(provisioning.available_bytes(), 28 * kMiB);
}

TEST_F(Provisioning, TheSegmentOfARequestThatIsGoneIsForAll) {
  LeaseWait before;
  ASSERT_TRUE(provisioning.start(2 * kMiB, before).is_ok());
  const std::uint32_t unfinished = before.segment;
  provisioning.abandon(before);
  EXPECT_EQ(before.segment, kNoSegment);
  source.finish_all();
  EXPECT_TRUE(parts.is_free(unfinished));
  LeaseWait after;
  ASSERT_TRUE(provisioning.start(2 * kMiB, after).is_ok());
  source.finish_all();
  const std::uint32_t finished = after.segment;
  provisioning.abandon(after);
  EXPECT_TRUE(parts.is_free(finished));
  provisioning.abandon(after);  // nothing was reserved
}

TEST_F(Provisioning, WhatTheBudgetHasNoRoomForIsNotAskedFor) {
  LeaseWait wait;
  EXPECT_EQ(provisioning.start(34 * kMiB, wait).code(), Code::kStoreFull);
  EXPECT_EQ(wait.segment, kNoSegment);
  EXPECT_TRUE(source.waiting.empty());
  EXPECT_FALSE(provisioning.is_short()) << "the machine was not asked";
}

TEST_F(Provisioning, AMachineThatRefusesMakesTheStoreSmallerUntilItIsAskedAgain) {
  source.at_once = true;
  parts.make(4 * kMiB);
  source.machine_bytes = 8 * kMiB;
  LeaseWait wait;
  ASSERT_TRUE(provisioning.start(8 * kMiB, wait).is_ok());
  EXPECT_EQ(wait.segment, kNoSegment);
  EXPECT_TRUE(provisioning.is_short());
  EXPECT_EQ(provisioning.limit_bytes(), 8 * kMiB) << "what is committed, plus half of what was refused";
  EXPECT_EQ(provisioning.available_bytes(), 4 * kMiB);
  EXPECT_EQ(provisioning.warm_note(), "the machine has no more");
  EXPECT_EQ(parts.live.committed_bytes(), 4 * kMiB);
  ASSERT_TRUE(provisioning.start(2 * kMiB, wait).is_ok());
  EXPECT_NE(provisioning.take(wait), kNoSegment);
  ASSERT_TRUE(provisioning.start(4 * kMiB, wait).is_ok());
  EXPECT_EQ(wait.segment, kNoSegment);
  EXPECT_EQ(provisioning.limit_bytes(), 8 * kMiB) << "it does not grow by a refusal";
  provisioning.retry_memory();
  EXPECT_FALSE(provisioning.is_short());
  EXPECT_EQ(provisioning.warm_note(), "");
  EXPECT_EQ(provisioning.limit_bytes(), 32 * kMiB);
  EXPECT_EQ(provisioning.available_bytes(), 26 * kMiB);
}

TEST_F(Provisioning, AnAnswerForADroppedSegmentIsIgnored) {
  LeaseWait wait;
  ASSERT_TRUE(provisioning.start(2 * kMiB, wait).is_ok());
  const std::uint32_t segment = wait.segment;
  const std::uint32_t generation = parts.live.table().generation(segment);
  parts.live.drop(segment);
  provisioning.provisioned(segment, generation, Status::ok(), MemoryKind::kSmallPages);
  EXPECT_FALSE(parts.live.contains(segment));
  LeaseWait next;
  ASSERT_TRUE(provisioning.start(2 * kMiB, next).is_ok());
  ASSERT_EQ(next.segment, segment) << "the number is used again";
  provisioning.provisioned(segment, generation, Status(Code::kStoreFull, "late"), MemoryKind::kCold);
  EXPECT_TRUE(provisioning.is_under_way(next));
  EXPECT_FALSE(provisioning.is_short());
}

TEST_F(Provisioning, KnowsTheKindOfTheLatestMemory) {
  source.at_once = true;
  EXPECT_EQ(provisioning.latest_kind(), MemoryKind::kUnknown);
  source.kind = MemoryKind::kHugePages;
  const std::uint32_t segment = parts.make(2 * kMiB);
  EXPECT_EQ(provisioning.latest_kind(), MemoryKind::kHugePages);
  EXPECT_EQ(parts.live.table().kind(segment), MemoryKind::kHugePages);
}

TEST_F(Provisioning, SmallPagesMayBecomeHugeOnesLater) {
  source.at_once = true;
  source.kind = MemoryKind::kSmallPages;
  const std::uint32_t segment = parts.make(2 * kMiB);
  const std::uint32_t generation = parts.live.table().generation(segment);
  const SegmentState state = parts.live.state(segment);
  provisioning.provisioned(segment, generation, Status::ok(), MemoryKind::kHugePages);
  EXPECT_EQ(parts.live.table().kind(segment), MemoryKind::kHugePages);
  EXPECT_EQ(parts.live.state(segment), state);
  provisioning.provisioned(segment, generation + 1, Status::ok(), MemoryKind::kSmallPages);
  EXPECT_EQ(parts.live.table().kind(segment), MemoryKind::kHugePages) << "that was about another segment";
}

TEST_F(Provisioning, NothingIsMadeAheadOfDemandWithoutATarget) {
  EXPECT_TRUE(provisioning.warm_done());
  provisioning.top_up(true);
  EXPECT_TRUE(source.waiting.empty());
}

// Keeps four small segments of 2 MiB, and a large one of 16.
struct WarmProvisioning : Provisioning {
  WarmProvisioning() : Provisioning(24 * kMiB) {}

  std::uint64_t next(bool large_too = true) {
    provisioning.top_up(large_too);
    const std::uint64_t bytes = source.waiting.empty() ? 0 : source.waiting.back().bytes;
    source.finish_all();
    return bytes;
  }
  void fill() {
    while (next() != 0)
      ;
  }
};

TEST_F(WarmProvisioning, OneSegmentAtATimeTheLargeOneLast) {
  provisioning.top_up(true);
  provisioning.top_up(true);
  ASSERT_EQ(source.waiting.size(), 1U);
  EXPECT_FALSE(source.waiting[0].urgent);
  source.finish_all();
  for (int count = 0; count < 3; ++count)
    EXPECT_EQ(next(), 2 * kMiB);
  EXPECT_EQ(next(false), 0U) << "not while large values are written";
  EXPECT_FALSE(provisioning.warm_done());
  EXPECT_EQ(next(), 16 * kMiB);
  EXPECT_FALSE(provisioning.warm_done());
  EXPECT_EQ(next(), 0U);
  EXPECT_TRUE(provisioning.warm_done());
}

TEST_F(WarmProvisioning, WhatARequestWaitsForIsNotCountedAndHoldsNothingUp) {
  LeaseWait wait;
  ASSERT_TRUE(provisioning.start(2 * kMiB, wait).is_ok());
  provisioning.top_up(true);
  EXPECT_EQ(source.waiting.size(), 2U);
}

TEST_F(WarmProvisioning, WhatWasTakenIsReplacedAsFarAsTheCapacityReaches) {
  fill();
  ASSERT_EQ(parts.live.committed_bytes(), 24 * kMiB);
  for (const auto& [segment, entry] : parts.live.all())
    parts.live.lease(segment, {1, 1});
  for (int count = 0; count < 4; ++count)
    EXPECT_EQ(next(), 2 * kMiB);
  EXPECT_EQ(next(), 0U) << "the capacity is in use";
  EXPECT_TRUE(provisioning.warm_done());
}

TEST_F(WarmProvisioning, StopsAtAFailureUntilItIsWorthAnotherAttempt) {
  source.failure = Status(Code::kStoreFull, "the machine has 3 MiB left");
  EXPECT_EQ(next(), 2 * kMiB);
  EXPECT_EQ(provisioning.warm_note(), "the machine has 3 MiB left");
  source.failure = {};
  EXPECT_EQ(next(), 0U);
  EXPECT_FALSE(provisioning.warm_done());
  provisioning.retry_memory();
  EXPECT_EQ(next(), 2 * kMiB);
}

}  // namespace
}  // namespace entrepot::testing
