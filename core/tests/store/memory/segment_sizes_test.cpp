#include "store/memory/segment_sizes.h"

#include <gtest/gtest.h>

#include <vector>

#include "store/units.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kGiB = 1024 * kMiB;
using Missing = SegmentSizes::Missing;

static_assert(fits_better(4, 8, 3), "of those that suffice, the smallest");
static_assert(!fits_better(8, 4, 3));
static_assert(!fits_better(2, 4, 3));
static_assert(fits_better(2, 1, 3), "of those that do not, the largest");
static_assert(!fits_better(1, 2, 3));
static_assert(fits_better(9, 2, 3));

std::vector<std::uint32_t> numbers(const std::vector<FreeSegment>& segments) {
  std::vector<std::uint32_t> result;
  for (const FreeSegment& free : segments)
    result.push_back(free.segment);
  return result;
}

TEST(SegmentSizes, ASmallSegmentIsASixteenthOfTheCapacityWithinBounds) {
  EXPECT_EQ(SegmentSizes(16 * kMiB, 0).small_bytes(), 2 * kMiB);
  EXPECT_EQ(SegmentSizes(100 * kMiB, 0).small_bytes(), 6 * kMiB);
  EXPECT_EQ(SegmentSizes(8 * kGiB, 0).small_bytes(), 64 * kMiB);
}

TEST(SegmentSizes, NoMoreThanTheCapacityIsKeptWarm) {
  EXPECT_EQ(SegmentSizes(16 * kMiB, kGiB).warm_target_bytes(), 16 * kMiB);
  EXPECT_EQ(SegmentSizes(16 * kMiB, 0).missing(0, false), Missing::kNothing);
}

TEST(SegmentSizes, TwoThirdsOfTheTargetAreForOneLargeValue) {
  const SegmentSizes sizes(96 * kMiB, 48 * kMiB);
  EXPECT_EQ(sizes.large_bytes(), 32 * kMiB);
  EXPECT_EQ(sizes.small_count(), 3U);  // of 6 MiB, for the remaining 16
  EXPECT_FALSE(sizes.is_large(24 * kMiB));
  EXPECT_TRUE(sizes.is_large(26 * kMiB)) << "records may have taken some of it";
  EXPECT_EQ(sizes.missing(0, false), Missing::kSmall);
  EXPECT_EQ(sizes.missing(2, true), Missing::kSmall);
  EXPECT_EQ(sizes.missing(3, false), Missing::kLarge);
  EXPECT_EQ(sizes.missing(3, true), Missing::kNothing);
  EXPECT_EQ(sizes.new_large(90 * kMiB), 32 * kMiB);
  EXPECT_EQ(sizes.new_large(31 * kMiB), 30 * kMiB);
  EXPECT_EQ(sizes.new_large(kMiB), 26 * kMiB);
}

TEST(SegmentSizes, WithoutALargeOneAllOfTheTargetIsForSmallSegments) {
  const SegmentSizes sizes(512 * kMiB, 64 * kMiB, false);
  EXPECT_EQ(sizes.large_bytes(), 0U);
  EXPECT_EQ(sizes.small_count() * sizes.small_bytes(), 64 * kMiB);
}

TEST(SegmentSizes, ASmallTargetKeepsSmallSegmentsOnly) {
  const SegmentSizes sizes(64 * kMiB, 5 * kMiB);
  EXPECT_EQ(sizes.large_bytes(), 0U);
  EXPECT_FALSE(sizes.is_large(kGiB));
  EXPECT_EQ(sizes.missing(1, false), Missing::kSmall);
  EXPECT_EQ(sizes.missing(2, false), Missing::kNothing);
}

TEST(SegmentSizes, ALeaseGetsASegmentOfItsOwnSizeOnlyIfItIsLarge) {
  const SegmentSizes sizes(64 * kMiB, 0);  // small: 4 MiB
  EXPECT_EQ(sizes.new_for_lease(kKiB, kMiB), 4 * kMiB);
  EXPECT_EQ(sizes.new_for_lease(4 * kMiB, 4 * kMiB), 4 * kMiB);
  EXPECT_EQ(sizes.new_for_lease(kMiB, 5 * kMiB), 6 * kMiB);
  EXPECT_EQ(sizes.largest_for_lease(kMiB), 8 * kMiB);
  EXPECT_EQ(sizes.largest_for_lease(5 * kMiB), UINT64_MAX);
}

TEST(Surplus, NothingUpToTheTarget) {
  const SegmentSizes sizes(64 * kMiB, 8 * kMiB);
  EXPECT_TRUE(find_surplus(sizes, {}).empty());
  EXPECT_TRUE(find_surplus(sizes, {{1, 2 * kMiB}, {2, 6 * kMiB}}).empty());
}

TEST(Surplus, AllOfItWhereNothingIsKeptWarmTheLargestFirst) {
  const SegmentSizes sizes(64 * kMiB, 0);
  const auto surplus = find_surplus(sizes, {{1, 4 * kMiB}, {2, 20 * kMiB}, {3, 2 * kMiB}, {4, 8 * kMiB}});
  EXPECT_EQ(numbers(surplus), (std::vector<std::uint32_t>{2, 4, 1, 3}));
}

TEST(Surplus, WhatWouldBeMadeAgainStaysAndOfThatTheWarmest) {
  const SegmentSizes sizes(64 * kMiB, 5 * kMiB);  // keeps two of 4 MiB
  ASSERT_EQ(sizes.small_count(), 2U);
  const auto surplus = find_surplus(sizes, {{1, 4 * kMiB, MemoryKind::kCold},
                                            {2, 4 * kMiB, MemoryKind::kHugePages},
                                            {3, 4 * kMiB, MemoryKind::kUnknown},
                                            {4, 4 * kMiB, MemoryKind::kSmallPages}});
  EXPECT_EQ(surplus.size(), 2U);
  for (const FreeSegment& free : surplus)
    EXPECT_TRUE(free.segment == 1 || free.segment == 3) << free.segment;
}

TEST(Surplus, WhatIsFarTooLargeIsNotKeptForALargeValue) {
  const SegmentSizes sizes(256 * kMiB, 96 * kMiB);  // large: 64 MiB, and two small ones of 16 MiB
  ASSERT_EQ(sizes.large_bytes(), 64 * kMiB);
  ASSERT_EQ(sizes.small_count(), 2U);
  const std::vector<FreeSegment> small = {{1, 16 * kMiB}, {2, 16 * kMiB}};
  auto fitting = small;
  fitting.push_back({3, 80 * kMiB});
  EXPECT_TRUE(find_surplus(sizes, fitting).empty());
  auto too_large = small;
  too_large.push_back({3, 82 * kMiB});
  EXPECT_EQ(numbers(find_surplus(sizes, too_large)), (std::vector<std::uint32_t>{3}));
}

TEST(Surplus, WhatWasUsedLatelyStaysInWholeSegments) {
  const SegmentSizes sizes(64 * kMiB, 4 * kMiB);
  const std::vector<FreeSegment> free = {{1, 4 * kMiB}, {2, 20 * kMiB}, {3, 10 * kMiB}, {4, 6 * kMiB}};
  EXPECT_EQ(numbers(find_surplus(sizes, free, 1)), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(numbers(find_surplus(sizes, free, 10 * kMiB)), (std::vector<std::uint32_t>{2, 4}));
  EXPECT_EQ(numbers(find_surplus(sizes, free, 20 * kMiB)), (std::vector<std::uint32_t>{3, 4}));
  EXPECT_TRUE(find_surplus(sizes, free, 36 * kMiB).empty());
  EXPECT_EQ(numbers(find_surplus(sizes, free, 0)), (std::vector<std::uint32_t>{2, 3, 4}));
}

TEST(Surplus, EndsAtTheTarget) {
  const SegmentSizes sizes(64 * kMiB, 4 * kMiB);
  // 1 has the right size and is kept.
  const auto surplus = find_surplus(sizes, {{1, 4 * kMiB}, {2, 20 * kMiB}, {3, 10 * kMiB}});
  EXPECT_EQ(numbers(surplus), (std::vector<std::uint32_t>{2, 3}));
  // Without 2, just the target is free: the others stay, though they are too small to be kept warm.
  const auto barely = find_surplus(sizes, {{2, 20 * kMiB}, {3, 2 * kMiB}, {4, 2 * kMiB}});
  EXPECT_EQ(numbers(barely), (std::vector<std::uint32_t>{2}));
}

}  // namespace
}  // namespace entrepot::testing
