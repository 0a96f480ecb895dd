// The reclaimer: which of removing, dropping, evicting and writing comes first, what stays, and writing ahead of demand.
#include "store/paging/reclaimer.h"

#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

using Purpose = Reclaimer::Purpose;

class Reclaiming : public ::testing::Test {
 protected:
  explicit Reclaiming(bool spills = true) : p(spills), spills_(spills) {}

  void complete() {
    for (const SpillCompletion& done : p.end_io()) {
      if (done.is_read) {
        loader.complete(done);
      } else {
        reclaimer.on_written(p.writer.complete(done));
      }
    }
  }
  std::uint32_t put_clean(std::uint64_t number) {
    const std::uint32_t slot = p.put(number);
    p.writer.write(slot);
    complete();
    return slot;
  }
  std::uint32_t put_recomputable(std::uint64_t number, std::uint64_t ns) {
    const std::uint32_t slot = p.put(number);
    SlotHints hints;
    hints.recompute = RecomputeCode::of_ns(ns);
    p.hint(slot, hints);
    return slot;
  }
  [[nodiscard]] bool resident(std::uint32_t slot) const { return p.parts.catalog.is_resident(slot); }

  PagingParts p;
  bool spills_;
  Loader loader{{p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock,
                 spills_ ? &p.spill : nullptr, [](std::uint64_t, bool) { return false; }}};
  Prefetcher prefetcher{
      {p.parts.catalog, p.parts.blobs, p.sets, p.pins, p.candidates, p.writer, loader, p.clock, kPartsCapacity}};
  Reclaimer reclaimer{{p.parts.catalog, p.parts.blobs, p.objects, p.residency, p.pool, p.candidates, p.writer, loader,
                       prefetcher, p.clock, spills_, 80, 70}};
};

class ReclaimingWithoutDisk : public Reclaiming {
 protected:
  ReclaimingWithoutDisk() : Reclaiming(false) {}
};

constexpr std::uint64_t kCheapNs = 1'000'000;  // writing and reading 2 MiB is estimated at about 5 ms
constexpr std::uint64_t kDearNs = 60'000'000'000;

TEST_F(Reclaiming, TheDeadGoAtOnceAndTheDirtyOnceTheyAreWritten) {
  const std::uint32_t dirty = p.put(1);
  const std::uint32_t dead = p.put(2);
  SlotHints hints;
  hints.dead = true;
  p.hint(dead, hints);
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_EQ(p.lookup(2), Code::kObjectNotFound);
  EXPECT_EQ(reclaimer.stats().dropped_dead, 1U);
  EXPECT_TRUE(p.writer.is_writing(dirty));
  EXPECT_FALSE(reclaimer.reclaim(kMiB, Purpose::kNew)) << "there will be memory when that is written";
  complete();
  EXPECT_TRUE(resident(dirty)) << "writing evicts nothing by itself";
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_FALSE(resident(dirty));
  EXPECT_EQ(reclaimer.stats().evictions, 1U);
  EXPECT_EQ(reclaimer.stats().evicted_bytes, 2 * kMiB);
  EXPECT_FALSE(p.candidates.policy().is_admitted(dirty));
}

TEST_F(Reclaiming, NoMoreCleanObjectsLeaveThanNeeded) {
  const std::uint32_t first = put_clean(1);
  const std::uint32_t second = put_clean(2);
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_NE(resident(first), resident(second));
}

TEST_F(Reclaiming, TheCheapToRecomputeAreDroppedAndTheDearAreWritten) {
  const std::uint32_t dear = put_recomputable(1, kDearNs);
  static_cast<void>(put_recomputable(2, kCheapNs));
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_EQ(p.lookup(2), Code::kObjectDropped);
  EXPECT_TRUE(resident(dear) && p.writer.is_writing(dear));
  EXPECT_EQ(reclaimer.stats().dropped, 1U);
  EXPECT_EQ(reclaimer.stats().dropped_bytes, 2 * kMiB);
}

TEST_F(Reclaiming, TheDearAreDroppedOnceNothingCanBeWritten) {
  static_cast<void>(put_recomputable(1, kDearNs));
  const std::uint32_t other = p.put(2);
  p.spill.quota = 0;
  EXPECT_FALSE(reclaimer.reclaim(kMiB, Purpose::kPrefetch)) << "never for read-ahead";
  EXPECT_EQ(p.lookup(1), Code::kOk);
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kLoad));
  EXPECT_EQ(p.lookup(1), Code::kObjectDropped);
  EXPECT_TRUE(resident(other));
}

TEST_F(Reclaiming, WhatIsPinnedHeldOrUserPinnedStays) {
  const std::uint32_t pinned = put_clean(1);
  const std::uint32_t held = put_clean(2);
  const std::uint32_t user_pinned = put_clean(3);
  p.pin(pinned);
  p.candidates.hold(held);
  SlotHints hints;
  hints.pinned = true;
  p.hint(user_pinned, hints);
  EXPECT_EQ(reclaimer.spillable_bytes(), 4 * kMiB) << "all but what a client pins";
  EXPECT_FALSE(reclaimer.reclaim(32 * kMiB, Purpose::kLoad));
  EXPECT_TRUE(resident(pinned) && resident(held) && resident(user_pinned));
  p.clock.advance_ms(250);
  EXPECT_TRUE(reclaimer.reclaim(32 * kMiB, Purpose::kLoad));
  EXPECT_TRUE(resident(pinned) && !resident(held) && resident(user_pinned));
}

TEST_F(Reclaiming, TargetsOfReadAheadGoLastAndNeverForMoreReadAhead) {
  std::vector<std::uint32_t> slots;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    slots.push_back(put_clean(number));
    prefetcher.track(slots.back());
  }
  for (std::size_t i = 0; i < 3; ++i)
    prefetcher.was_used(slots[i], 1);
  prefetcher.run();
  ASSERT_TRUE(prefetcher.is_target(slots[3]) && prefetcher.is_target(slots[4]));
  EXPECT_TRUE(reclaimer.reclaim(32 * kMiB, Purpose::kLoad));
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(resident(slots[i]), i >= 3) << i;
  EXPECT_FALSE(reclaimer.reclaim(32 * kMiB, Purpose::kPrefetch));
  EXPECT_TRUE(reclaimer.reclaim(32 * kMiB, Purpose::kLoad));
  EXPECT_FALSE(resident(slots[3]) || resident(slots[4]));
}

// A spilled object can be reloaded only in exchange for one with a copy, or one for which there is room on disk.
TEST_F(Reclaiming, NewValuesDoNotUseUpWhatReloadsNeed) {
  const std::uint32_t first = put_clean(1);
  const std::uint32_t second = put_clean(2);
  p.spill.quota = p.spill.used();
  EXPECT_FALSE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_TRUE(resident(first) && resident(second));
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kLoad));
  EXPECT_NE(resident(first), resident(second));
}

TEST_F(Reclaiming, TheReserveCountsWhatAnEarlierDaemonSpilled) {
  static_cast<void>(p.put_spilled(1, 8 * kMiB));
  for (std::uint64_t number = 2; number <= 4; ++number)
    static_cast<void>(put_clean(number));
  p.spill.quota = p.spill.used();
  EXPECT_FALSE(reclaimer.reclaim(kMiB, Purpose::kNew)) << "the 6 MiB that are clean are kept for it";
  EXPECT_TRUE(reclaimer.is_short_of_quota());
  EXPECT_EQ(p.parts.blobs.clean_bytes(), 6 * kMiB);
}

TEST_F(Reclaiming, TheReserveShrinksWhenTheLargestSpilledObjectIsDeleted) {
  static_cast<void>(p.put_spilled(1, 8 * kMiB));
  for (std::uint64_t number = 2; number <= 4; ++number)
    static_cast<void>(put_clean(number));
  reclaimer.begin_turn();
  p.spill.quota = p.spill.used();
  ASSERT_FALSE(reclaimer.reclaim(kMiB, Purpose::kNew));
  p.remove(1);
  p.spill.quota = p.spill.used();
  reclaimer.begin_turn();
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_FALSE(reclaimer.is_short_of_quota());
  EXPECT_EQ(p.parts.blobs.clean_bytes(), 4 * kMiB);
}

TEST_F(Reclaiming, WhatTheQuotaHasNoRoomForDoesNotHideWhatFits) {
  const std::uint32_t large = p.put(1, 8 * kMiB);
  const std::uint32_t small = p.put(2);
  p.spill.quota = 5 * kMiB;
  EXPECT_FALSE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_TRUE(reclaimer.is_short_of_quota());
  EXPECT_TRUE(p.writer.is_writing(small) && !p.writer.is_writing(large));
  complete();
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_TRUE(resident(large) && !resident(small));
}

TEST_F(Reclaiming, WriteBackPassesOverWhatTheQuotaHasNoRoomFor) {
  static_cast<void>(p.put(1, 8 * kMiB));
  for (std::uint64_t number = 2; number <= 11; ++number)
    static_cast<void>(p.put(number));
  p.spill.quota = 7 * kMiB;
  reclaimer.write_back();
  EXPECT_EQ(p.writer.bytes_in_flight(), 6 * kMiB) << "three of the small ones";
}

TEST_F(Reclaiming, TheRecomputableIsDroppedIfTheQuotaHasNoRoomForIt) {
  static_cast<void>(put_recomputable(1, kDearNs));
  p.spill.quota = kMiB;
  EXPECT_TRUE(reclaimer.reclaim(kMiB, Purpose::kNew));
  EXPECT_EQ(p.lookup(1), Code::kObjectDropped);
}

TEST_F(Reclaiming, AnObjectIsEvictedOnRequest) {
  const std::uint32_t dirty = p.put(1);
  EXPECT_TRUE(reclaimer.evict(dirty).is_ok());
  EXPECT_TRUE(resident(dirty));
  complete();
  EXPECT_FALSE(resident(dirty));
  const std::uint32_t clean = put_clean(2);
  EXPECT_TRUE(reclaimer.evict(clean).is_ok());
  EXPECT_FALSE(resident(clean));
  const std::uint32_t kept = put_clean(3);
  SlotHints hints;
  hints.pinned = true;
  p.hint(kept, hints);
  EXPECT_EQ(reclaimer.evict(kept).code(), Code::kInvalidArgument);
  EXPECT_TRUE(resident(kept));
}

TEST_F(Reclaiming, WriteBackStartsAboveTheHighMarkAndStopsBelowTheLowOne) {
  for (std::uint64_t number = 0; number < 12; ++number)
    static_cast<void>(p.put(number));
  reclaimer.write_back();
  EXPECT_TRUE(p.writer.is_idle()) << "24 of 32 MiB: below the high mark";
  for (std::uint64_t number = 12; number < 14; ++number)
    static_cast<void>(p.put(number));
  reclaimer.write_back();
  EXPECT_GE(p.writer.bytes_in_flight(), 6 * kMiB);
  EXPECT_LE(p.writer.bytes_in_flight(), 8 * kMiB) << "no more than it takes to get below the low mark";
  const std::size_t writes = p.spill.waiting.size();
  reclaimer.write_back();
  EXPECT_EQ(p.spill.waiting.size(), writes);
  complete();
  EXPECT_EQ(p.parts.blobs.spilled_bytes(), 0U) << "what was written stays";
  EXPECT_GE(p.parts.blobs.clean_bytes(), 6 * kMiB);
  reclaimer.write_back();
  EXPECT_TRUE(p.writer.is_idle());
}

TEST_F(Reclaiming, WriteBackSparesWhatIsCheaperToDrop) {
  for (std::uint64_t number = 0; number < 14; ++number)
    static_cast<void>(put_recomputable(number, kCheapNs));
  reclaimer.write_back();
  EXPECT_TRUE(p.writer.is_idle());
  EXPECT_EQ(p.parts.catalog.count(), 14U) << "nothing is dropped ahead of demand";
}

TEST_F(ReclaimingWithoutDisk, OnlyTheDeadAndTheRecomputableGo) {
  const std::uint32_t stays = p.put(1);
  EXPECT_FALSE(reclaimer.reclaim(32 * kMiB, Purpose::kNew));
  static_cast<void>(put_recomputable(2, kDearNs));
  const std::uint32_t dead = p.put(3);
  SlotHints hints;
  hints.dead = true;
  p.hint(dead, hints);
  EXPECT_TRUE(reclaimer.reclaim(32 * kMiB, Purpose::kNew));
  EXPECT_EQ(p.lookup(3), Code::kObjectNotFound);
  EXPECT_EQ(p.lookup(2), Code::kOk) << "not before it has to";
  EXPECT_TRUE(reclaimer.reclaim(32 * kMiB, Purpose::kNew));
  EXPECT_EQ(p.lookup(2), Code::kObjectDropped);
  EXPECT_FALSE(reclaimer.reclaim(32 * kMiB, Purpose::kNew));
  EXPECT_TRUE(resident(stays));
  EXPECT_EQ(reclaimer.evict(stays).code(), Code::kInvalidArgument);
  EXPECT_EQ(reclaimer.spillable_bytes(), 0U);
}

}  // namespace
}  // namespace entrepot::testing
