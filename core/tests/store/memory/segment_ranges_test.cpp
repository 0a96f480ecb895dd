#include "store/memory/segment_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "os/memfd.h"
#include "store/units.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kCell = kLeaseGranule;

struct Ranges : ::testing::Test {
  RangeTotals totals;
  SegmentRanges ranges{2 * kMiB, totals};
};

TEST_F(Ranges, ALeaseIsTakenFromWhatIsFreeAndGoesBackInParts) {
  ASSERT_EQ(ranges.lease(8 * kCell), 0U);
  EXPECT_EQ(totals.leased_bytes, 8 * kCell);
  EXPECT_TRUE(ranges.is_leased(0, 8 * kCell));
  EXPECT_FALSE(ranges.is_leased(kCell, 8 * kCell));
  ASSERT_TRUE(ranges.unlease(2 * kCell, 3 * kCell).is_ok());
  EXPECT_TRUE(ranges.is_leased(0, 2 * kCell));
  EXPECT_FALSE(ranges.is_leased(2 * kCell, 1));
  EXPECT_TRUE(ranges.is_leased(5 * kCell, 3 * kCell));
  EXPECT_EQ(ranges.leased_bytes(), 5 * kCell);
  EXPECT_EQ(ranges.lease_bounds().first, 0U);
  EXPECT_EQ(ranges.lease_bounds().end, 8 * kCell);
  ASSERT_TRUE(ranges.unlease_all().is_ok());
  EXPECT_TRUE(ranges.is_empty());
  EXPECT_EQ(ranges.lease_bounds().end, 0U);
  EXPECT_EQ(ranges.largest_free(), 2 * kMiB);
  EXPECT_EQ(totals.leased_bytes, 0U);
}

TEST_F(Ranges, NeighbouringLeasesAreOne) {
  ASSERT_TRUE(ranges.lease_exactly(0, kCell).is_ok());
  ASSERT_TRUE(ranges.lease_exactly(2 * kCell, kCell).is_ok());
  EXPECT_FALSE(ranges.is_leased(0, 3 * kCell));
  ASSERT_TRUE(ranges.lease_exactly(kCell, kCell).is_ok());
  EXPECT_TRUE(ranges.is_leased(0, 3 * kCell));
}

TEST_F(Ranges, ALeaseOfUpToSoMuchTakesTheLargestFreeRange) {
  ASSERT_TRUE(ranges.lease_exactly(10 * kCell, kCell).is_ok());
  EXPECT_EQ(ranges.lease(30 * kCell), std::nullopt);
  EXPECT_EQ(ranges.lease_up_to(30 * kCell, 22 * kCell), std::nullopt);
  const auto taken = ranges.lease_up_to(30 * kCell, 2 * kCell);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken, std::pair(11 * kCell, 21 * kCell));
}

TEST_F(Ranges, WhatIsInUseIsNotLeasedOrTakenAgain) {
  ASSERT_EQ(ranges.lease(4 * kCell), 0U);
  EXPECT_EQ(ranges.lease_exactly(3 * kCell, 2 * kCell).code(), Code::kCorruptData);
  EXPECT_EQ(ranges.adopt_blob(0, kCell).code(), Code::kCorruptData);
  EXPECT_EQ(ranges.retire(0, kCell).code(), Code::kCorruptData);
  EXPECT_EQ(ranges.lease_exactly(UINT64_MAX - 10, kCell).code(), Code::kCorruptData);
  EXPECT_EQ(totals.leased_bytes, 4 * kCell);
  EXPECT_EQ(totals.blob_bytes, 0U);
  EXPECT_EQ(ranges.retired_bytes(), 0U);
  EXPECT_FALSE(ranges.has_blobs());
}

TEST_F(Ranges, ABlobComesOutOfALeaseAndLeavesFreeMemory) {
  ASSERT_EQ(ranges.lease(4 * kCell), 0U);
  ranges.seal(kCell, kCell);
  EXPECT_FALSE(ranges.is_leased(kCell, 1));
  EXPECT_EQ(totals.leased_bytes, 3 * kCell);
  EXPECT_EQ(totals.blob_bytes, kCell);
  ASSERT_TRUE(ranges.unlease_all().is_ok());
  EXPECT_TRUE(ranges.has_blobs());
  EXPECT_FALSE(ranges.is_empty());
  ASSERT_TRUE(ranges.free_blob(kCell, kCell).is_ok());
  EXPECT_TRUE(ranges.is_empty());
  EXPECT_EQ(totals.blob_bytes, 0U);
  EXPECT_EQ(ranges.free_bytes(), 2 * kMiB);
}

TEST_F(Ranges, WithinBoundsAllThatIsFreeIsLeased) {
  ASSERT_TRUE(ranges.adopt_blob(4 * kCell, kCell).is_ok());
  ranges.lease_all_within({2 * kCell, 8 * kCell});
  EXPECT_EQ(ranges.leased_bytes(), 5 * kCell);
  EXPECT_TRUE(ranges.is_leased(2 * kCell, 2 * kCell));
  EXPECT_TRUE(ranges.is_leased(5 * kCell, 3 * kCell));
  EXPECT_FALSE(ranges.is_leased(kCell, 1));
  EXPECT_FALSE(ranges.is_leased(8 * kCell, 1));
}

TEST_F(Ranges, RetiredPagesAreGone) {
  ASSERT_EQ(ranges.lease(4 * kCell), 0U);
  ASSERT_TRUE(ranges.retire(4 * kCell, 2 * kMiB - 4 * kCell).is_ok());
  EXPECT_EQ(ranges.committed_bytes(), 4 * kCell);
  EXPECT_EQ(ranges.free_bytes(), 0U);
  ASSERT_TRUE(ranges.unlease_all().is_ok());
  EXPECT_EQ(ranges.largest_free(), 4 * kCell);
  EXPECT_TRUE(ranges.is_empty());
}

TEST_F(Ranges, FreePagesAreWholeAndWorthACall) {
  const std::uint64_t page = os::page_bytes();
  // Taken, a hole of less than 64 KiB, taken, and the rest, which begins within a page.
  ASSERT_TRUE(ranges.adopt_blob(0, page).is_ok());
  ASSERT_TRUE(ranges.adopt_blob(page + 60 * kKiB, kKiB).is_ok());
  const RangeList pages = ranges.free_pages();
  ASSERT_EQ(pages.size(), 1U);
  const auto [first, length] = pages[0];
  EXPECT_EQ(first % page, 0U);
  EXPECT_GT(first, page + 60 * kKiB);
  EXPECT_EQ(first + length, 2 * kMiB);
}

TEST(RangeTotals, LoseWhatWasLeasedInADroppedSegment) {
  RangeTotals totals;
  SegmentRanges kept(2 * kMiB, totals);
  ASSERT_TRUE(kept.lease(kCell).has_value());
  {
    SegmentRanges dropped(2 * kMiB, totals);
    ASSERT_TRUE(dropped.lease(3 * kCell).has_value());
    EXPECT_EQ(totals.leased_bytes, 4 * kCell);
  }
  EXPECT_EQ(totals.leased_bytes, kCell);
}

TEST(BlobExtent, OnlyALargeBlobAtAPageHasItsPagesToItself) {
  const std::uint64_t page = os::page_bytes();
  EXPECT_EQ(blob_extent_bytes(0, 1), kBlobAlign);
  EXPECT_EQ(blob_extent_bytes(0, kOwnPagesBytes + 1), kOwnPagesBytes + page);
  EXPECT_EQ(blob_extent_bytes(kBlobAlign, kOwnPagesBytes + 1), kOwnPagesBytes + kBlobAlign);
}

// Against a model with one state per granule.
class RangesModel : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::size_t kCells = 2 * kMiB / kCell;
  enum class Use : std::uint8_t { kFree, kLeased, kSealed, kRetired };

  std::size_t random(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }
  void set(std::uint64_t offset, std::uint64_t length, Use from, Use to) {
    for (std::size_t cell = offset / kCell; cell < (offset + length) / kCell; ++cell) {
      ASSERT_EQ(cells_.at(cell), from) << cell;
      cells_[cell] = to;
    }
  }
  [[nodiscard]] bool all(std::size_t first, std::size_t count, Use use) const {
    for (std::size_t cell = first; cell < first + count; ++cell) {
      if (cells_[cell] != use) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t bytes(Use use) const {
    return kCell * static_cast<std::uint64_t>(std::count(cells_.begin(), cells_.end(), use));
  }
  void step() {
    const std::size_t first = random(kCells);
    const std::size_t count = 1 + random(std::min<std::size_t>(6, kCells - first));
    const std::uint64_t offset = first * kCell;
    const std::uint64_t length = count * kCell;
    const bool leased = all(first, count, Use::kLeased);
    ASSERT_EQ(ranges_.is_leased(offset, length), leased);
    switch (random(8)) {
      case 0:
        if (const auto taken = ranges_.lease(length)) set(*taken, length, Use::kFree, Use::kLeased);
        break;
      case 1:
        if (const auto taken = ranges_.lease_up_to(length, kCell))
          set(taken->first, taken->second, Use::kFree, Use::kLeased);
        break;
      case 2: {
        const bool free = all(first, count, Use::kFree);
        ASSERT_EQ(ranges_.lease_exactly(offset, length).is_ok(), free);
        if (free) set(offset, length, Use::kFree, Use::kLeased);
        break;
      }
      case 3:
        if (!leased) break;
        ASSERT_TRUE(ranges_.unlease(offset, length).is_ok());
        set(offset, length, Use::kLeased, Use::kFree);
        break;
      case 4:
        if (!leased) break;
        ranges_.seal(offset, length);
        set(offset, length, Use::kLeased, Use::kSealed);
        blobs_.emplace_back(offset, length);
        break;
      case 5:
        if (const auto taken = ranges_.allocate_blob(length, kCell)) {
          set(*taken, length, Use::kFree, Use::kSealed);
          blobs_.emplace_back(*taken, length);
        }
        break;
      case 6: {
        if (blobs_.empty()) break;
        const auto blob = blobs_.begin() + static_cast<std::ptrdiff_t>(random(blobs_.size()));
        ASSERT_TRUE(ranges_.free_blob(blob->first, blob->second).is_ok());
        set(blob->first, blob->second, Use::kSealed, Use::kFree);
        blobs_.erase(blob);
        break;
      }
      case 7:
        if (random(100) != 0) break;  // rarely: what is retired takes part in nothing any more
        if (ranges_.retire(offset, length).is_ok()) set(offset, length, Use::kFree, Use::kRetired);
        break;
    }
    ASSERT_EQ(ranges_.leased_bytes(), bytes(Use::kLeased));
    ASSERT_EQ(totals_.leased_bytes, bytes(Use::kLeased));
    ASSERT_EQ(totals_.blob_bytes, bytes(Use::kSealed));
    ASSERT_EQ(ranges_.free_bytes(), bytes(Use::kFree));
    ASSERT_EQ(ranges_.retired_bytes(), bytes(Use::kRetired));
    ASSERT_EQ(ranges_.has_blobs(), !blobs_.empty());
  }

  RangeTotals totals_;
  SegmentRanges ranges_{2 * kMiB, totals_};
  std::vector<Use> cells_ = std::vector<Use>(kCells, Use::kFree);
  RangeList blobs_;
  std::mt19937 random_{GetParam()};
};

TEST_P(RangesModel, AgreesAfterEveryStep) {
  for (int count = 0; count < 3000; ++count)
    ASSERT_NO_FATAL_FAILURE(step()) << "in step " << count;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RangesModel, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace entrepot::testing
