#include "client/lost_objects.h"

#include <gtest/gtest.h>

#include <numeric>

namespace entrepot::testing {
namespace {

// Even numbers: the lowest bit is not part of a fingerprint.
std::vector<std::uint64_t> fingerprints(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> result(count);
  std::iota(result.begin(), result.end(), first);
  for (std::uint64_t& fingerprint : result)
    fingerprint *= 2;
  return result;
}

std::size_t count_lost(const LostObjects& lost, std::uint64_t first, std::size_t count) {
  std::size_t lost_count = 0;
  for (const std::uint64_t fingerprint : fingerprints(first, count))
    lost_count += lost.contains(fingerprint) ? 1 : 0;
  return lost_count;
}

TEST(LostObjects, ForgetsTheOldestAndNoMoreThanNecessary) {
  LostObjects lost(100);
  lost.add(fingerprints(0, 60));
  lost.add(fingerprints(1'000, 30));
  EXPECT_EQ(count_lost(lost, 0, 60), 60U);
  lost.add(fingerprints(2'000, 30));
  EXPECT_EQ(lost.size(), 100U);
  EXPECT_EQ(count_lost(lost, 0, 60), 40U);
  EXPECT_EQ(count_lost(lost, 1'000, 30), 30U);
  EXPECT_EQ(count_lost(lost, 2'000, 30), 30U);
  lost.add(fingerprints(3'000, 500));
  EXPECT_EQ(lost.size(), 100U);
  EXPECT_EQ(count_lost(lost, 3'000, 500), 100U);
  EXPECT_EQ(count_lost(lost, 2'000, 30), 0U);
}

TEST(LostObjects, RemembersTheObjectsOfManyStores) {
  LostObjects lost;
  for (std::uint64_t store = 0; store < 50; ++store)
    lost.add(fingerprints(store * 10, 20));  // half of them in the next one too
  EXPECT_EQ(count_lost(lost, 0, 1'000), 510U);
  EXPECT_FALSE(lost.contains(5'000));
}

TEST(LostObjects, WhatWasFoundAgainIsNotLostUntilThatStoreDies) {
  LostObjects lost;
  EXPECT_TRUE(lost.empty());
  lost.add(fingerprints(0, 10));
  lost.note_found(4);
  lost.note_found(5'000);
  EXPECT_FALSE(lost.contains(4));
  EXPECT_EQ(count_lost(lost, 0, 10), 9U);
  lost.add({4});
  EXPECT_TRUE(lost.contains(4));
  lost.note_found(4);
  for (std::uint64_t store = 0; store < 20; ++store)
    lost.add(fingerprints(100 + store, 1));  // has the lists merged
  EXPECT_FALSE(lost.contains(4));
  EXPECT_EQ(count_lost(lost, 0, 10), 9U);
}

}  // namespace
}  // namespace entrepot::testing
