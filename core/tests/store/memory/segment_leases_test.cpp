#include "store/memory/segment_leases.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "shm/leases.h"
#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

constexpr SegmentWriterRef kFirst{1, 11};
constexpr SegmentWriterRef kSecond{2, 22};

struct SegmentLeasesTest : ::testing::Test {
  // A lease that must be granted at once.
  LeaseGrant grant(const SegmentWriterRef& client, std::uint64_t min_bytes, std::uint64_t want_bytes = 0) {
    LeaseWait wait;
    const auto result = leases.lease(client, min_bytes, want_bytes, wait);
    EXPECT_TRUE(result.is_ok() && result->has_value());
    return result.is_ok() && result->has_value() ? **result : LeaseGrant{};
  }
  // A lease for which there is no memory.
  void expect_none(const SegmentWriterRef& client, std::uint64_t min_bytes) {
    LeaseWait wait;
    const auto result = leases.lease(client, min_bytes, 0, wait);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_FALSE(result->has_value());
    EXPECT_EQ(wait.segment, kNoSegment);
  }

  SurvivingMemory machine;
  SegmentParts parts{machine, 8 * kMiB};  // small segments: 2 MiB
  LiveSegments& live = parts.live;
  SegmentLeases leases{live, parts.provisioning, parts.reclaimer, parts.sizes};
};

TEST_F(SegmentLeasesTest, ClientsWriteInSegmentsOfTheirOwn) {
  const LeaseGrant first = grant(kFirst, 1);
  EXPECT_EQ(first.length, kLeaseGranule);
  EXPECT_EQ(first.segment_bytes, 2 * kMiB);
  EXPECT_TRUE(first.first);
  const LeaseGrant again = grant(kFirst, 1);
  EXPECT_EQ(again.segment, first.segment);
  EXPECT_EQ(again.offset, first.offset + first.length);
  EXPECT_FALSE(again.first);
  EXPECT_NE(grant(kSecond, 1).segment, first.segment);
  EXPECT_EQ(live.leased_bytes(), 3 * kLeaseGranule);
}

TEST_F(SegmentLeasesTest, ARangeOfItsOwnIsTakenIfItIsAQuarterOfWhatIsWanted) {
  const LeaseGrant first = grant(kFirst, 1536 * kKiB);
  const LeaseGrant rest = grant(kFirst, kKiB, 2 * kMiB);
  EXPECT_EQ(rest.segment, first.segment);
  EXPECT_EQ(rest.length, 512 * kKiB);
  EXPECT_NE(grant(kFirst, kKiB, 2 * kMiB).segment, first.segment);
}

TEST_F(SegmentLeasesTest, WhatExceedsTheStoreIsRefusedForGood) {
  LeaseWait wait;
  const auto result = leases.lease(kFirst, 9 * kMiB, 0, wait);
  EXPECT_EQ(result.code(), Code::kStoreFull);
  EXPECT_FALSE(result.status().retryable());
  EXPECT_NE(result.status().message().find("larger than the whole store of 8 MiB"), std::string::npos);
}

TEST_F(SegmentLeasesTest, WaitsForItsSegmentAndTakesThatAndNoOther) {
  machine.source.at_once = false;
  LeaseWait wait;
  ASSERT_TRUE(leases.lease(kFirst, kMiB, 0, wait).is_ok());
  const std::uint32_t segment = wait.segment;
  ASSERT_NE(segment, kNoSegment);
  auto result = leases.lease(kFirst, kMiB, 0, wait);
  EXPECT_TRUE(result.is_ok() && !result->has_value()) << "still being made";
  machine.source.finish_all();
  LeaseWait other;
  result = leases.lease(kSecond, kMiB, 0, other);
  EXPECT_TRUE(result.is_ok() && !result->has_value()) << "it is not for others";
  result = leases.lease(kFirst, kMiB, 0, wait);
  ASSERT_TRUE(result.is_ok() && result->has_value());
  EXPECT_EQ((*result)->segment, segment);
  EXPECT_EQ(wait.segment, kNoSegment);
}

TEST_F(SegmentLeasesTest, ASegmentThatIsTooSmallIsNotTakenEvenIfItWasMadeForTheRequest) {
  machine.source.at_once = false;
  LeaseWait wait;
  ASSERT_TRUE(leases.lease(kFirst, kMiB, 0, wait).is_ok());
  const std::uint32_t small = wait.segment;
  ASSERT_NE(small, kNoSegment);
  machine.source.finish_all();
  const auto larger = leases.lease(kFirst, 4 * kMiB, 0, wait);
  ASSERT_TRUE(larger.is_ok()) << larger.status().to_string();
  EXPECT_FALSE(larger->has_value());
  EXPECT_NE(wait.segment, small);
  EXPECT_EQ(live.leased_bytes(), 0U);
}

TEST_F(SegmentLeasesTest, AMachineThatRefusesAtOnceGivesASmallerSegmentOrNone) {
  machine.source.machine_bytes = 2 * kMiB;
  EXPECT_EQ(grant(kFirst, kMiB, 6 * kMiB).segment_bytes, 2 * kMiB);
  expect_none(kFirst, 4 * kMiB);
  EXPECT_TRUE(parts.provisioning.is_short());
}

TEST_F(SegmentLeasesTest, AFullStoreGivesBackWhatIsFreeElsewhere) {
  const LeaseGrant held = grant(kFirst, 4 * kMiB);
  const LeaseGrant rest = grant(kFirst, 4 * kMiB);
  expect_none(kSecond, kMiB);
  ASSERT_TRUE(leases.unlease(kFirst.client, rest.segment, 2 * kMiB, 2 * kMiB, false).is_ok());
  const LeaseGrant given = grant(kSecond, kMiB);
  EXPECT_NE(given.segment, rest.segment);
  EXPECT_EQ(machine.source.punched, 2 * kMiB);
  EXPECT_EQ(live.committed_bytes(), 8 * kMiB);
  EXPECT_TRUE(leases.check_leased(kFirst.client, held.segment, held.offset, held.length).is_ok());
}

TEST_F(SegmentLeasesTest, OnlyTheWritersOwnRangesCanBeReturned) {
  const LeaseGrant held = grant(kFirst, 512 * kKiB);
  const auto code = [&](std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
    return leases.unlease(client, segment, offset, length, false).code();
  };
  EXPECT_EQ(code(kSecond.client, held.segment, 0, kLeaseGranule), Code::kInvalidArgument);
  EXPECT_EQ(code(kFirst.client, 99, 0, kLeaseGranule), Code::kInvalidArgument);
  EXPECT_EQ(code(kFirst.client, held.segment, 0, kKiB), Code::kInvalidArgument) << "not a multiple";
  EXPECT_EQ(code(kFirst.client, held.segment, 512 * kKiB, kLeaseGranule), Code::kInvalidArgument) << "not leased";
  EXPECT_EQ(code(kFirst.client, held.segment, 2 * kMiB, kLeaseGranule), Code::kInvalidArgument) << "outside";
  EXPECT_EQ(code(kFirst.client, held.segment, kLeaseGranule, 0 - kLeaseGranule), Code::kInvalidArgument) << "overflow";
  EXPECT_EQ(live.leased_bytes(), 512 * kKiB);
  EXPECT_EQ(code(kFirst.client, held.segment, 0, kLeaseGranule), Code::kOk);
  EXPECT_EQ(code(kFirst.client, held.segment, 0, kLeaseGranule), Code::kInvalidArgument) << "returned twice";
  EXPECT_EQ(live.table().leases(held.segment).first, kLeaseGranule);
}

TEST_F(SegmentLeasesTest, AnUnmappedSegmentGoesToOthersOnceItIsEmpty) {
  const LeaseGrant held = grant(kFirst, 4 * kMiB);
  live.ranges(held.segment).seal(0, kMiB);
  ASSERT_TRUE(leases.unlease(kFirst.client, held.segment, 0, 0, true).is_ok());
  EXPECT_EQ(live.state(held.segment), SegmentState::kReturned);
  EXPECT_EQ(leases.unlease(kFirst.client, held.segment, 0, 0, true).code(), Code::kInvalidArgument);
  const LeaseGrant again = grant(kFirst, 2 * kMiB);
  EXPECT_EQ(again.segment, held.segment) << "its last writer may have it back";
  EXPECT_TRUE(again.first) << "with its descriptor";
  ASSERT_TRUE(live.ranges(held.segment).free_blob(0, kMiB).is_ok());
  ASSERT_TRUE(leases.unlease(kFirst.client, held.segment, 0, 0, true).is_ok());
  EXPECT_EQ(grant(kSecond, 4 * kMiB).segment, held.segment);
}

TEST_F(SegmentLeasesTest, AWithheldSegmentIsNotLeasedToItsLastWriterEither) {
  const std::uint32_t returned = parts.make_holding(2 * kMiB, kMiB, kFirst);
  live.withhold(returned);
  EXPECT_NE(grant(kFirst, kKiB).segment, returned);
  ASSERT_EQ(live.release_withheld().size(), 1U);
  EXPECT_EQ(grant(kFirst, kMiB).segment, returned);
}

TEST_F(SegmentLeasesTest, ADisconnectedClientKeepsItsSegmentsADeadOneDoesNot) {
  const LeaseGrant empty = grant(kFirst, 2 * kMiB);
  const LeaseGrant holding = grant(kFirst, 2 * kMiB);
  ASSERT_NE(empty.segment, holding.segment);
  live.ranges(holding.segment).seal(0, kMiB);
  const std::uint32_t returned = parts.make_holding(2 * kMiB, kMiB, kFirst);
  const LeaseGrant others = grant(kSecond, kMiB);
  leases.client_disconnected(kFirst.client);
  EXPECT_EQ(live.leased_bytes(), others.length);
  EXPECT_TRUE(live.is_writer(empty.segment, kFirst.client));
  leases.client_died(kFirst.client);
  EXPECT_TRUE(parts.is_free(empty.segment));
  EXPECT_EQ(live.state(holding.segment), SegmentState::kReturned);
  EXPECT_FALSE(live.may_write_again(holding.segment, kFirst));
  EXPECT_FALSE(live.may_write_again(returned, kFirst)) << "its token may be given to another client";
  EXPECT_TRUE(live.is_writer(others.segment, kSecond.client));
}

TEST_F(SegmentLeasesTest, AReconnectedClientHoldsExactlyWhatItReports) {
  const LeaseGrant held = grant(kFirst, 512 * kKiB);
  const LeaseGrant unmapped = grant(kFirst, 2 * kMiB);
  ASSERT_NE(held.segment, unmapped.segment);
  live.quarantine(held.segment);
  live.quarantine(unmapped.segment);
  live.ranges(held.segment).seal(0, kLeaseGranule);
  const std::vector<ReportedLease> reported = {
      {held.segment, held.generation, kLeaseGranule, kLeaseGranule},
      {held.segment, held.generation, 0, kLeaseGranule},                      // a blob
      {held.segment, held.generation + 1, 4 * kLeaseGranule, kLeaseGranule},  // another segment of this number
      {held.segment, held.generation, 4 * kLeaseGranule, 0},
      {99, 1, 0, kLeaseGranule},
  };
  leases.restore(kFirst, &reported);
  EXPECT_EQ(live.leased_bytes(), kLeaseGranule);
  EXPECT_TRUE(leases.check_leased(kFirst.client, held.segment, kLeaseGranule, kLeaseGranule).is_ok());
  EXPECT_EQ(live.table().leases(held.segment).first, kLeaseGranule);
  EXPECT_EQ(live.table().leases(held.segment).end, 2 * kLeaseGranule);
  EXPECT_EQ(live.state(held.segment), SegmentState::kLeased);
  EXPECT_FALSE(grant(kFirst, kKiB).first) << "it holds something there, so it has it mapped";
  EXPECT_EQ(live.table().leases(unmapped.segment).end, 0U);
  EXPECT_TRUE(grant(kFirst, 2 * kMiB).first) << "it may have unmapped the other one";
}

TEST_F(SegmentLeasesTest, AClientThatReportsNothingKeepsWhatItMayHold) {
  const LeaseGrant held = grant(kFirst, 512 * kKiB);
  live.quarantine(held.segment);
  leases.restore(kFirst, nullptr);
  EXPECT_EQ(live.leased_bytes(), 512 * kKiB);
  EXPECT_EQ(live.state(held.segment), SegmentState::kLeased);
}

}  // namespace
}  // namespace entrepot::testing
