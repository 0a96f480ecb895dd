#include "shm/extent_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

TEST(ExtentAllocator, TakesTheSmallestThatFits) {
  ExtentAllocator extents(1000);
  ASSERT_EQ(extents.allocate(1000), 0U);
  EXPECT_FALSE(extents.allocate(1).has_value());
  ASSERT_TRUE(extents.free(0, 300).is_ok());
  ASSERT_TRUE(extents.free(400, 100).is_ok());
  ASSERT_TRUE(extents.free(600, 200).is_ok());
  EXPECT_EQ(extents.allocate(90), 400U);
  EXPECT_EQ(extents.allocate(150), 600U);
  EXPECT_EQ(extents.allocate(250), 0U);
  EXPECT_EQ(extents.free_bytes(), 600U - 90 - 150 - 250);
}

TEST(ExtentAllocator, NeighboursCoalesce) {
  ExtentAllocator extents(400);
  ASSERT_EQ(extents.allocate(400), 0U);
  ASSERT_TRUE(extents.free(0, 100).is_ok());
  ASSERT_TRUE(extents.free(200, 100).is_ok());
  EXPECT_EQ(extents.largest_free(), 100U);
  ASSERT_TRUE(extents.free(100, 100).is_ok());
  EXPECT_EQ(extents.largest_free(), 300U);
  EXPECT_EQ(extents.free_extents(), 1U);
  ASSERT_TRUE(extents.free(300, 100).is_ok());
  EXPECT_EQ(extents.largest_free(), 400U);
}

TEST(ExtentAllocator, AlignmentLeavesTheRestFree) {
  ExtentAllocator extents(10'000);
  ASSERT_TRUE(extents.reserve(0, 1).is_ok());
  EXPECT_EQ(extents.allocate(100, 4096), 4096U);
  EXPECT_TRUE(extents.is_free(1, 4095));
  EXPECT_EQ(extents.free_bytes(), 10'000U - 101);
}

TEST(ExtentAllocator, ManyBadlyAlignedExtentsDoNotHideOneThatFits) {
  ExtentAllocator extents(1U << 20);
  ASSERT_EQ(extents.allocate(1U << 20), 0U);
  // A hundred holes of 4 KiB that are misaligned by 64, and a larger one that fits.
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(extents.free(i * 8192 + 64, 4096).is_ok());
  EXPECT_FALSE(extents.allocate(4096, 4096).has_value());
  ASSERT_TRUE(extents.free(900'000, 8192).is_ok());
  EXPECT_EQ(extents.allocate(4096, 4096), 901'120U);
  // One perfect hole among the misaligned ones, and none larger.
  ASSERT_TRUE(extents.free(1'040'384, 4096).is_ok());
  EXPECT_EQ(extents.allocate(4096, 4096), 1'040'384U);
}

TEST(ExtentAllocator, UpToTakesWhatThereIs) {
  ExtentAllocator extents(1000);
  ASSERT_TRUE(extents.reserve(400, 100).is_ok());
  EXPECT_EQ(extents.allocate_up_to(800, 64, 64), (std::pair<std::uint64_t, std::uint64_t>{512, 448}));
  EXPECT_EQ(extents.allocate_up_to(128, 64, 64), (std::pair<std::uint64_t, std::uint64_t>{0, 128}));
  EXPECT_FALSE(extents.allocate_up_to(800, 500, 1).has_value());
  EXPECT_FALSE(extents.allocate_up_to(10, 20, 1).has_value());
}

TEST(ExtentAllocator, MistakesAreErrorsAndChangeNothing) {
  ExtentAllocator extents(1000);
  ASSERT_TRUE(extents.reserve(100, 100).is_ok());
  EXPECT_EQ(extents.reserve(150, 100).code(), Code::kCorruptData);
  EXPECT_EQ(extents.reserve(950, 100).code(), Code::kCorruptData);
  EXPECT_EQ(extents.free(150, 100).code(), Code::kInternal);  // half of it is already free
  EXPECT_EQ(extents.free(50, 100).code(), Code::kInternal);
  EXPECT_EQ(extents.free(900, 200).code(), Code::kInternal);
  EXPECT_EQ(extents.free(UINT64_MAX, 2).code(), Code::kInternal);
  EXPECT_EQ(extents.free_bytes(), 900U);
  ASSERT_TRUE(extents.free(100, 100).is_ok());
  EXPECT_EQ(extents.free(100, 100).code(), Code::kInternal);  // double free
  EXPECT_EQ(extents.free_bytes(), 1000U);
}

TEST(ExtentAllocator, GrowJoinsTheLastExtent) {
  ExtentAllocator extents(100);
  extents.grow(300);
  EXPECT_EQ(extents.largest_free(), 300U);
  ASSERT_EQ(extents.allocate(300), 0U);
  extents.grow(310);
  EXPECT_EQ(extents.allocate(10), 300U);
  extents.grow(5);  // never shrinks
  EXPECT_EQ(extents.bytes(), 310U);
}

// Model: one flag per byte, and a best fit by exhaustive search.
class Model {
 public:
  explicit Model(std::size_t bytes) : used_(bytes, false) {}

  void check(const ExtentAllocator& extents) const {
    std::uint64_t free_bytes = 0;
    std::uint64_t largest = 0;
    std::vector<bool> free_by_extents(used_.size(), false);
    std::uint64_t previous_end = 0;
    bool first = true;
    extents.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
      ASSERT_GT(length, 0U);
      ASSERT_TRUE(first || offset > previous_end) << "two extents touch at " << offset;
      for (std::uint64_t i = offset; i < offset + length; ++i)
        free_by_extents[i] = true;
      free_bytes += length;
      largest = std::max(largest, length);
      previous_end = offset + length;
      first = false;
    });
    for (std::size_t i = 0; i < used_.size(); ++i)
      ASSERT_NE(used_[i], free_by_extents[i]) << "byte " << i;
    ASSERT_EQ(extents.free_bytes(), free_bytes);
    ASSERT_EQ(extents.largest_free(), largest);
  }

  // Length of the shortest hole that fits `bytes` at this alignment; 0 if there is none.
  [[nodiscard]] std::uint64_t best_hole(std::uint64_t bytes, std::uint64_t align) const {
    std::uint64_t best = 0;
    for (std::size_t start = 0; start < used_.size();) {
      if (used_[start]) {
        ++start;
        continue;
      }
      std::size_t end = start;
      while (end < used_.size() && !used_[end])
        ++end;
      const std::size_t aligned = (start + align - 1) / align * align;
      if (aligned + bytes <= end && (best == 0 || end - start < best)) best = end - start;
      start = end;
    }
    return best;
  }
  [[nodiscard]] std::uint64_t hole_at(std::uint64_t offset) const {
    std::size_t start = offset;
    std::size_t end = offset;
    while (start > 0 && !used_[start - 1])
      --start;
    while (end < used_.size() && !used_[end])
      ++end;
    return end - start;
  }
  void set(std::uint64_t offset, std::uint64_t bytes, bool used) {
    for (std::uint64_t i = offset; i < offset + bytes; ++i) {
      ASSERT_NE(used_[i], used) << "byte " << i;
      used_[i] = used;
    }
  }
  [[nodiscard]] bool all(std::uint64_t offset, std::uint64_t bytes, bool used) const {
    for (std::uint64_t i = offset; i < offset + bytes; ++i) {
      if (used_[i] != used) return false;
    }
    return true;
  }

 private:
  std::vector<bool> used_;
};

TEST(ExtentAllocator, AgreesWithTheModelInRandomHistories) {
  constexpr std::uint64_t kBytes = 512;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    ExtentAllocator extents(kBytes);
    Model model(kBytes);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> held;
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t choice = below(10);
      if (choice < 5) {
        const std::uint64_t bytes = 1 + below(seed % 3 == 0 ? 8 : 64);
        const std::uint64_t align = 1ULL << below(5);
        const std::uint64_t best = model.best_hole(bytes, align);
        const std::optional<std::uint64_t> offset = extents.allocate(bytes, align);
        ASSERT_EQ(offset.has_value(), best != 0) << bytes << " aligned to " << align;
        if (!offset) continue;
        ASSERT_EQ(*offset % align, 0U);
        ASSERT_GE(model.hole_at(*offset), best);
        if (align == 1) {
          ASSERT_EQ(model.hole_at(*offset), best);  // best fit
        }
        model.set(*offset, bytes, true);
        held.emplace_back(*offset, bytes);
      } else if (choice < 8 && !held.empty()) {
        const std::size_t which = below(held.size());
        const auto [offset, bytes] = held[which];
        held[which] = held.back();
        held.pop_back();
        const std::uint64_t head = bytes > 1 && below(2) == 0 ? 1 + below(bytes - 1) : bytes;
        ASSERT_TRUE(extents.free(offset, head).is_ok());
        model.set(offset, head, false);
        if (head < bytes) held.emplace_back(offset + head, bytes - head);
      } else {
        const std::uint64_t offset = below(kBytes);
        const std::uint64_t bytes = 1 + below(kBytes - offset);
        const bool possible = model.all(offset, bytes, false);
        ASSERT_EQ(extents.is_free(offset, bytes), possible);
        ASSERT_EQ(extents.reserve(offset, bytes).is_ok(), possible);
        if (possible) {
          model.set(offset, bytes, true);
          held.emplace_back(offset, bytes);
        } else if (!model.all(offset, bytes, true)) {
          ASSERT_FALSE(extents.free(offset, bytes).is_ok());
        }
      }
      model.check(extents);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FakeSegment, WhatIsAllocatedCanBeWritten) {
  testing::FakeSegment segment(64U << 10);
  const std::uint64_t a = *segment.allocate(1000);
  const std::uint64_t b = *segment.allocate(1000);
  std::memset(segment.at(a), 1, 1000);
  std::memset(segment.at(b), 2, 1000);
  ASSERT_TRUE(segment.free(a, 1000).is_ok());
  EXPECT_EQ(*segment.at(b + 999), std::byte{2});
}

#if defined(__SANITIZE_ADDRESS__)
TEST(FakeSegmentDeathTest, WhatIsFreeCannotBeRead) {
  testing::FakeSegment segment(64U << 10);
  const std::uint64_t a = *segment.allocate(1024);
  std::memset(segment.at(a), 1, 1024);
  ASSERT_TRUE(segment.free(a, 1024).is_ok());
  EXPECT_DEATH(
      {
        volatile std::byte seen = *segment.at(a + 512);
        static_cast<void>(seen);
      },
      "use-after-poison");
}
#endif

}  // namespace
}  // namespace entrepot
