// The prefetcher alone: what it loads early, and when it looks at the read logs.
#include "store/paging/prefetcher.h"

#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kOneMsNs = 1'000'000;

class Prefetching : public ::testing::Test {
 protected:
  // Objects that follow each other in the order of sealing.
  void put_spilled(int count) {
    for (int i = 0; i < count; ++i) {
      slots.push_back(p.put_spilled(static_cast<std::uint64_t>(i)));
      prefetcher.track(slots.back());
    }
  }
  void begin_run() {  // three uses: two steps to neighbors
    for (std::size_t i = 0; i < 3; ++i)
      prefetcher.was_used(slots[i], 1);
  }
  void note_read(std::uint32_t slot) { p.reads.record_access(slot, p.parts.catalog.directory().generation(slot)); }

  PagingParts p;
  Loader loader{{p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock, &p.spill,
                 [](std::uint64_t, bool) { return false; }}};
  Prefetcher prefetcher{
      {p.parts.catalog, p.parts.blobs, p.sets, p.pins, p.candidates, p.writer, loader, p.clock, kPartsCapacity}};
  std::vector<std::uint32_t> slots;
};

TEST_F(Prefetching, TheNextTwoOfARunAreLoaded) {
  put_spilled(8);
  prefetcher.was_used(slots[0], 1);
  prefetcher.was_used(slots[1], 1);
  prefetcher.run();
  EXPECT_TRUE(loader.is_idle()) << "two uses are no run";
  prefetcher.was_used(slots[2], 1);
  prefetcher.run();
  EXPECT_TRUE(loader.is_loading(slots[3]) && loader.is_loading(slots[4]));
  EXPECT_FALSE(loader.is_loading(slots[5])) << "more than a quarter of the memory";
  EXPECT_TRUE(prefetcher.is_target(slots[3]) && prefetcher.is_target(slots[4]));
  EXPECT_FALSE(prefetcher.is_target(slots[2]));
}

TEST_F(Prefetching, WhatIsDeadLeavingOrGoneIsPassedOver) {
  put_spilled(7);
  SlotHints dead;
  dead.dead = true;
  p.hint(slots[3], dead);
  p.writer.write_to_evict(slots[4]);
  prefetcher.object_ended(slots[5]);
  begin_run();
  prefetcher.run();
  EXPECT_TRUE(loader.is_loading(slots[6]));
  for (const std::size_t i : {3U, 4U, 5U})
    EXPECT_FALSE(loader.is_loading(slots[i])) << i;
}

TEST_F(Prefetching, RequestedLoadsComeFirst) {
  put_spilled(8);
  const std::uint32_t large = p.put_spilled(50, 6 * kMiB);
  p.fill(100);
  loader.load(large);
  ASSERT_TRUE(loader.has_waiting());
  p.remove(100);  // room for a load ahead
  begin_run();
  prefetcher.run();
  EXPECT_TRUE(loader.is_idle());
  EXPECT_TRUE(prefetcher.is_target(slots[3])) << "it is not evicted either, if it is resident";
  loader.object_ended(large);
  loader.try_waiting();
  prefetcher.run();
  EXPECT_TRUE(loader.is_idle()) << "nothing changed that it knows of";
  prefetcher.on_io_done();
  prefetcher.run();
  EXPECT_TRUE(loader.is_loading(slots[3]));
}

TEST(PrefetchingMuch, ReadsNoMoreAtOnceThanMayDelayARequest) {
  constexpr std::uint64_t kCapacity = 4096 * kMiB;
  PagingParts p(true, kCapacity);
  Loader loader({p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock, &p.spill,
                 [](std::uint64_t, bool) { return false; }});
  Prefetcher prefetcher(
      {p.parts.catalog, p.parts.blobs, p.sets, p.pins, p.candidates, p.writer, loader, p.clock, kCapacity});
  std::vector<std::uint32_t> slots;
  for (std::uint64_t number = 0; number < 9; ++number) {
    slots.push_back(p.put_spilled(number, 20 * kMiB));
    prefetcher.track(slots.back());
  }
  for (std::size_t i = 0; i < 3; ++i)
    prefetcher.was_used(slots[i], 1);
  prefetcher.run();
  EXPECT_TRUE(prefetcher.is_target(slots[8]));
  EXPECT_EQ(loader.bytes_ahead(), 100 * kMiB);
  EXPECT_FALSE(loader.is_loading(slots[8]));
  for (const SpillCompletion& done : p.end_io())
    loader.complete(done);
  prefetcher.on_io_done();
  prefetcher.run();
  EXPECT_TRUE(loader.is_loading(slots[8])) << "once the others are read";
}

TEST_F(Prefetching, ReadLogsArePolledWhileThereIsARun) {
  put_spilled(8);
  prefetcher.poll();
  EXPECT_EQ(prefetcher.next_poll_ns(), UINT64_MAX);
  begin_run();
  prefetcher.poll();
  EXPECT_EQ(prefetcher.next_poll_ns(), p.clock.monotonic_ns() + 2 * kOneMsNs);
  p.clock.advance_ms(2);
  prefetcher.poll();
  EXPECT_EQ(prefetcher.next_poll_ns(), p.clock.monotonic_ns() + 4 * kOneMsNs) << "nothing was read";
  p.clock.advance_ms(4);
  note_read(slots[3]);
  prefetcher.poll();
  EXPECT_EQ(prefetcher.next_poll_ns(), p.clock.monotonic_ns() + 2 * kOneMsNs) << "a step";
  prefetcher.run();
  EXPECT_TRUE(prefetcher.is_target(slots[5]) && !prefetcher.is_target(slots[3]));
  p.clock.advance_ms(2000);
  prefetcher.poll();
  EXPECT_EQ(prefetcher.next_poll_ns(), UINT64_MAX);
  prefetcher.run();
  EXPECT_FALSE(prefetcher.has_targets());
}

TEST_F(Prefetching, TheReadLogReachesThePolicyAndEndsAHold) {
  const std::uint32_t slot = p.put(1);
  const std::uint32_t other = p.put(2);
  p.candidates.hold(slot);
  note_read(slot);
  p.reads.record_access(other, p.parts.catalog.directory().generation(other) + 1);  // another version of it
  prefetcher.apply_read_log();
  EXPECT_TRUE(p.candidates.policy().explain(slot, p.clock.monotonic_ns()).was_read);
  EXPECT_FALSE(p.candidates.policy().explain(other, p.clock.monotonic_ns()).was_read);
  EXPECT_FALSE(p.candidates.is_held(slot));
}

}  // namespace
}  // namespace entrepot::testing
