// Warm demand alone: what was in use in, how much to keep out.
#include "store/memory/warm_demand.h"

#include <gtest/gtest.h>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

struct WarmDemandTest : ::testing::Test {
  void after_ms(std::uint64_t ms, std::uint64_t in_use_bytes) {
    clock.advance_ms(ms);
    demand.note(in_use_bytes);
  }

  FakeClock clock;
  WarmDemand demand{clock, 30'000'000'000};
};

TEST_F(WarmDemandTest, NothingIsKeptBeforeAnythingWasUsed) {
  EXPECT_EQ(demand.peak_bytes(), 0U);
  EXPECT_EQ(demand.kept_bytes(), 0U);
}

TEST_F(WarmDemandTest, WhatIsInUseIsNotKeptOnceMore) {
  demand.note(kMiB);
  after_ms(1, 300 * kMiB);
  EXPECT_EQ(demand.peak_bytes(), 300 * kMiB);
  EXPECT_EQ(demand.kept_bytes(), 0U);
}

TEST_F(WarmDemandTest, WhatWasFreedIsKeptForAWindowAfterThePeakHoweverLongThatLasted) {
  demand.note(300 * kMiB);
  after_ms(100'000, 100 * kMiB);
  EXPECT_EQ(demand.kept_bytes(), 200 * kMiB);
  clock.advance_ms(29'999);
  EXPECT_EQ(demand.kept_bytes(), 200 * kMiB);
  clock.advance_ms(1);
  EXPECT_EQ(demand.kept_bytes(), 0U);
  EXPECT_EQ(demand.peak_bytes(), 100 * kMiB);
}

TEST_F(WarmDemandTest, LessIsKeptWhileItIsUsedAgain) {
  demand.note(300 * kMiB);
  after_ms(1'000, 0);
  after_ms(1'000, 200 * kMiB);
  EXPECT_EQ(demand.kept_bytes(), 100 * kMiB);
  after_ms(1'000, 400 * kMiB);
  EXPECT_EQ(demand.kept_bytes(), 0U);
  after_ms(1'000, 0);
  EXPECT_EQ(demand.kept_bytes(), 400 * kMiB) << "the new peak";
}

TEST_F(WarmDemandTest, PeaksAreForgottenOneByOne) {
  demand.note(300 * kMiB);
  after_ms(0, 0);
  after_ms(10'000, 200 * kMiB);
  after_ms(0, 0);
  after_ms(10'000, 100 * kMiB);
  after_ms(0, 0);
  EXPECT_EQ(demand.kept_bytes(), 300 * kMiB);
  clock.advance_ms(10'000);
  EXPECT_EQ(demand.kept_bytes(), 200 * kMiB);
  clock.advance_ms(10'000);
  EXPECT_EQ(demand.kept_bytes(), 100 * kMiB);
  clock.advance_ms(10'000);
  EXPECT_EQ(demand.kept_bytes(), 0U);
}

TEST_F(WarmDemandTest, ARegularUserKeepsWhatItNeedsForAsLongAsItComes) {
  for (int round = 0; round < 20; ++round) {
    after_ms(20'000, 64 * kMiB);
    after_ms(1'000, 0);
    EXPECT_EQ(demand.kept_bytes(), 64 * kMiB);
  }
}

TEST_F(WarmDemandTest, AnyNumberOfChangesKeepsTheHighestPeak) {
  std::uint64_t bytes = 1'000'000;
  demand.note(bytes);
  for (int change = 0; change < 1'000; ++change)  // ever lower peaks, 20 ms apart
    after_ms(20, --bytes);
  EXPECT_EQ(demand.peak_bytes(), 1'000'000U);
  clock.advance_ms(10'020);
  EXPECT_LT(demand.peak_bytes(), 1'000'000U);
  EXPECT_GE(demand.peak_bytes(), bytes + 900) << "at most a sixteenth of the window is missing";
  clock.advance_ms(20'000);
  EXPECT_EQ(demand.peak_bytes(), bytes);
}

TEST_F(WarmDemandTest, UnderPressureAllPeaksAreForgottenButNotWhatIsInUse) {
  demand.note(300 * kMiB);
  after_ms(1, 100 * kMiB);
  demand.forget();
  EXPECT_EQ(demand.kept_bytes(), 0U);
  EXPECT_EQ(demand.peak_bytes(), 100 * kMiB);
  after_ms(1, 50 * kMiB);
  EXPECT_EQ(demand.kept_bytes(), 50 * kMiB) << "a new peak";
}

}  // namespace
}  // namespace entrepot::testing
