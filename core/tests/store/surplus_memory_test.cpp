// Surplus memory and write bursts alone, with timers that the test runs.
#include "store/memory/surplus_memory.h"

#include "store/memory/write_burst.h"
#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

struct SurplusMemoryAlone : ::testing::Test {
  void advance_ms(std::uint64_t ms) {
    f.clock.advance_ms(ms);
    timers.run_due(f.clock.monotonic_ns());
  }
  // A free segment, of memory that a client has had.
  void free_a_segment() {
    f.lease(16 * kMiB);
    surplus.track();
    f.pool.client_died(kClient);
    surplus.track();
  }
  [[nodiscard]] std::uint64_t committed() const { return f.pool.committed_bytes(); }

  ControlMemory memory = control_memory();
  ObjectFixture f{memory};
  Timers timers;
  bool is_awaited = false;
  SurplusMemory surplus{{f.pool, timers, f.clock, 30, [this] { return is_awaited; }}};
};

TEST_F(SurplusMemoryAlone, WithoutAFreedSegmentNothingIsDue) {
  surplus.track();
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
}

TEST_F(SurplusMemoryAlone, GoesBackOnceItWasNotUsedForAWhile) {
  free_a_segment();
  const std::uint64_t before = committed();
  EXPECT_EQ(surplus.kept_bytes(), before);
  for (int second = 0; second < 29; ++second)
    advance_ms(1'000);
  EXPECT_EQ(committed(), before);
  advance_ms(1'000);
  EXPECT_LT(committed(), before);
  for (int step = 0; step < 100 && timers.next_ns() != kNoDeadline; ++step) {
    surplus.track();
    advance_ms(1'000);
  }
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
  EXPECT_EQ(committed(), f.pool.warm_target_bytes());
  EXPECT_EQ(surplus.kept_bytes(), 0U);
}

TEST_F(SurplusMemoryAlone, HolesBetweenValuesGoBackASecondAfterTheirWriter) {
  const BlobRange range = f.lease(16 * kMiB);
  f.pool.take_for_blob(range.segment, range.offset, 4 * kMiB);
  surplus.track();
  for (int second = 0; second < 60; ++second) {
    surplus.track();
    advance_ms(1'000);
  }
  const std::uint64_t before = committed();
  f.pool.client_died(kClient);
  surplus.track();
  advance_ms(999);
  EXPECT_EQ(committed(), before);
  for (int step = 0; step < 10; ++step) {
    advance_ms(20);
    surplus.track();
  }
  EXPECT_EQ(before - committed(), 12 * kMiB);
}

TEST_F(SurplusMemoryAlone, StaysWhileARequestWaits) {
  free_a_segment();
  const std::uint64_t before = committed();
  is_awaited = true;
  for (int second = 0; second < 60; ++second)
    advance_ms(1'000);
  EXPECT_EQ(committed(), before);
  is_awaited = false;
  advance_ms(1'000);
  EXPECT_LT(committed(), before);
}

TEST_F(SurplusMemoryAlone, GoesBackAtOnceWhileTheMachineIsShort) {
  free_a_segment();
  f.source.is_short = true;
  advance_ms(1'000);
  EXPECT_EQ(committed(), f.pool.warm_target_bytes());
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
}

TEST_F(SurplusMemoryAlone, GoesBackInTheSameMomentWhenProcessesWaitForMemory) {
  free_a_segment();
  EXPECT_TRUE(f.source.is_followed);
  surplus.others_need_memory(true);
  advance_ms(0);
  EXPECT_EQ(committed(), f.pool.warm_target_bytes());
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
  EXPECT_FALSE(f.source.is_followed) << "there is nothing left that pressure could take";
}

TEST_F(SurplusMemoryAlone, AControlGroupAtItsLimitIsLookedAtAndNotBelieved) {
  free_a_segment();
  const std::uint64_t before = committed();
  surplus.others_need_memory(false);
  advance_ms(0);
  EXPECT_EQ(committed(), before) << "it may be page cache";
  EXPECT_TRUE(f.source.is_followed);
  f.source.is_short = true;
  surplus.others_need_memory(false);
  advance_ms(99);
  EXPECT_EQ(committed(), before) << "looked at ten times a second at most";
  advance_ms(1);
  EXPECT_EQ(committed(), f.pool.warm_target_bytes());
}

TEST_F(SurplusMemoryAlone, PressureIsNotFollowedAndMakesNothingDueWhileNothingIsFree) {
  surplus.track();
  EXPECT_FALSE(f.source.is_followed);
  surplus.others_need_memory(true);
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
}

TEST_F(SurplusMemoryAlone, UnderPressureARequestThatWaitsStillComesFirst) {
  free_a_segment();
  const std::uint64_t before = committed();
  is_awaited = true;
  surplus.others_need_memory(true);
  advance_ms(0);
  EXPECT_EQ(committed(), before);
  is_awaited = false;
  advance_ms(1'000);
  EXPECT_EQ(committed(), f.pool.warm_target_bytes()) << "the peak stays forgotten";
}

TEST_F(SurplusMemoryAlone, IsNeverGivenBackIfThatIsOff) {
  SurplusMemory off{{f.pool, timers, f.clock, 0, [] { return false; }}};
  f.lease(16 * kMiB);
  f.pool.client_died(kClient);
  off.track();
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
  EXPECT_FALSE(f.source.is_followed);
}

TEST(WriteBurst, EndsAWhileAfterTheLastLargeLeaseAndIsBounded) {
  FakeClock clock;
  Timers timers;
  WriteBurst burst(timers, clock);
  EXPECT_FALSE(burst.in_progress());
  burst.extend();
  EXPECT_EQ(timers.next_ns(), clock.monotonic_ns() + kBurstNs);
  clock.advance_ms(249);
  EXPECT_TRUE(burst.in_progress());
  clock.advance_ms(1);
  EXPECT_FALSE(burst.in_progress());
  const std::uint64_t begin = clock.monotonic_ns();
  std::uint64_t leases = 0;
  do {
    burst.extend();
    ++leases;
    clock.advance_ms(100);
  } while (burst.in_progress());
  EXPECT_EQ(clock.monotonic_ns(), begin + kMaxBurstNs) << "although leases follow each other";
  EXPECT_EQ(leases, 10U);
  burst.extend();
  EXPECT_TRUE(burst.in_progress()) << "a new one";
}

}  // namespace
}  // namespace entrepot::testing
