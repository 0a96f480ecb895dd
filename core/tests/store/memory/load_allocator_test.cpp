#include "store/memory/load_allocator.h"

#include <gtest/gtest.h>

#include "os/memfd.h"
#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

struct Loads : ::testing::Test {
  // A range that must be there at once.
  BlobLocation place(std::uint64_t bytes) {
    LeaseWait wait;
    const auto result = loads.allocate(bytes, wait);
    EXPECT_TRUE(result.is_ok() && result->has_value());
    return result.is_ok() && result->has_value() ? **result : BlobLocation{};
  }

  SurvivingMemory machine;
  SegmentParts parts{machine, 16 * kMiB};  // small segments: 2 MiB
  LiveSegments& live = parts.live;
  LoadAllocator loads{live, parts.provisioning, parts.reclaimer, parts.sizes};
};

TEST_F(Loads, FillSegmentsThatHoldSomethingBeforeFreeOnes) {
  const std::uint32_t roomy = parts.make_holding(4 * kMiB, kMiB, kWriter);
  const std::uint32_t tight = parts.make_holding(4 * kMiB, 2 * kMiB, kWriter);
  const std::uint32_t free = parts.make(2 * kMiB);
  const BlobLocation first = place(1536 * kKiB);
  EXPECT_EQ(first.segment, tight) << "the best fit";
  EXPECT_EQ(first.segment_generation, live.table().generation(tight));
  EXPECT_EQ(first.length, 1536 * kKiB);
  EXPECT_EQ(live.blob_bytes(), 3 * kMiB + 1536 * kKiB);
  EXPECT_EQ(place(3 * kMiB).segment, roomy);
  EXPECT_EQ(place(kMiB).segment, free);
  EXPECT_EQ(live.state(free), SegmentState::kReturned);
}

TEST_F(Loads, TakeTheSmallestFreeSegmentThatIsLargeEnough) {
  parts.make(6 * kMiB);
  const std::uint32_t fitting = parts.make(4 * kMiB);
  parts.make(2 * kMiB);
  EXPECT_EQ(place(3 * kMiB).segment, fitting);
}

TEST_F(Loads, NeverShareASegmentWithAWriter) {
  const std::uint32_t leased = parts.make(4 * kMiB);
  live.lease(leased, {4, 44});
  const std::uint32_t returned = parts.make_holding(2 * kMiB, kMiB, kWriter);
  EXPECT_TRUE(live.may_write_again(returned, kWriter));
  EXPECT_EQ(place(kMiB).segment, returned);
  EXPECT_FALSE(live.may_write_again(returned, kWriter)) << "it holds what others wrote";
  EXPECT_NE(place(kMiB).segment, leased);
}

TEST_F(Loads, UseNothingThatIsWithheldOrReserved) {
  const std::uint32_t withheld = parts.make_holding(4 * kMiB, kMiB, kWriter);
  live.withhold(withheld);
  const std::uint32_t reserved = parts.make(4 * kMiB);
  live.reserve(reserved);
  const BlobLocation loaded = place(kMiB);
  EXPECT_NE(loaded.segment, withheld);
  EXPECT_NE(loaded.segment, reserved);
}

TEST_F(Loads, LargeBlobsHaveTheirPagesToThemselves) {
  const std::uint64_t page = os::page_bytes();
  place(1);
  const BlobLocation large = place(kOwnPagesBytes + 1);
  EXPECT_EQ(large.offset % page, 0U);
  EXPECT_EQ(live.blob_bytes(), kBlobAlign + kOwnPagesBytes + page);
}

TEST_F(Loads, GetANewSegmentAndWaitForIt) {
  machine.source.at_once = false;
  LeaseWait wait;
  auto result = loads.allocate(3 * kMiB, wait);
  ASSERT_TRUE(result.is_ok() && !result->has_value());
  ASSERT_NE(wait.segment, kNoSegment);
  EXPECT_EQ(machine.source.waiting.at(0).bytes, 4 * kMiB);
  result = loads.allocate(3 * kMiB, wait);
  EXPECT_TRUE(result.is_ok() && !result->has_value()) << "still being made";
  const std::uint32_t segment = wait.segment;
  machine.source.finish_all();
  result = loads.allocate(3 * kMiB, wait);
  ASSERT_TRUE(result.is_ok() && result->has_value());
  EXPECT_EQ((*result)->segment, segment);
  EXPECT_EQ(wait.segment, kNoSegment);
}

TEST_F(Loads, WaitForNothingInParticularInAFullStore) {
  for (int count = 0; count < 8; ++count) {
    const std::uint32_t segment = parts.make(2 * kMiB);
    live.lease(segment, kWriter);
    ASSERT_TRUE(live.ranges(segment).lease(2 * kMiB).has_value());
  }
  LeaseWait wait;
  const auto result = loads.allocate(kMiB, wait);
  EXPECT_TRUE(result.is_ok() && !result->has_value());
  EXPECT_EQ(wait.segment, kNoSegment);
}

TEST_F(Loads, GiveBackFreeMemoryForASegmentThatIsLargeEnough) {
  for (int count = 0; count < 8; ++count)
    parts.make(2 * kMiB);
  EXPECT_EQ(live.at(place(5 * kMiB).segment).ranges.bytes(), 6 * kMiB);
  EXPECT_EQ(live.committed_bytes(), 16 * kMiB);
}

}  // namespace
}  // namespace entrepot::testing
