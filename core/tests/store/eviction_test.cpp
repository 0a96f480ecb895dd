// The eviction policy on its own: order of victims.
#include "store/eviction/eviction_policy.h"

#include <gtest/gtest.h>

#include "store/paging/transfer_rate.h"
#include "store/units.h"

#include <vector>

namespace entrepot {
namespace {

using testing::kMiB;

constexpr std::uint64_t kSecond = 1'000'000'000;

using Slots = std::vector<std::uint32_t>;

Slots all_victims(const EvictionPolicy& policy, std::uint64_t now_ns) {
  return policy.victims(~0ULL, now_ns, [](std::uint32_t) { return true; });
}

TEST(EvictionLru, TheLeastRecentlyUsedGoFirstAndOnlyAsManyAsNeeded) {
  EvictionPolicy policy(Replacement::kLru);
  for (std::uint32_t slot = 0; slot < 4; ++slot)
    policy.admit(slot, 0, kMiB, (slot + 1) * kSecond);
  policy.touch(0, 10 * kSecond);
  EXPECT_EQ(all_victims(policy, 11 * kSecond), (Slots{1, 2, 3, 0}));
  EXPECT_EQ(policy.victims(kMiB + 1, 11 * kSecond, [](std::uint32_t) { return true; }), (Slots{1, 2}));
  EXPECT_TRUE(policy.victims(0, 11 * kSecond, [](std::uint32_t) { return true; }).empty());
  EXPECT_EQ(policy.bytes(), 4 * kMiB);
  policy.forget(1);
  policy.forget(1);
  EXPECT_EQ(policy.bytes(), 3 * kMiB);
  EXPECT_EQ(all_victims(policy, 11 * kSecond), (Slots{2, 3, 0}));
}

TEST(EvictionLru, WhatIsPinnedOrNotAllowedStaysAndTheDeadGoFirst) {
  EvictionPolicy policy(Replacement::kLru);
  for (std::uint32_t slot = 0; slot < 5; ++slot)
    policy.admit(slot, 0, kMiB, (slot + 1) * kSecond);
  policy.set_pinned(0, true);
  policy.set_dead(4, true);
  const auto not_two = [](std::uint32_t slot) { return slot != 2; };
  EXPECT_EQ(policy.victims(~0ULL, 9 * kSecond, not_two), (Slots{4, 1, 3}));
  policy.set_pinned(0, false);
  policy.set_dead(4, false);
  EXPECT_EQ(policy.victims(~0ULL, 9 * kSecond, not_two), (Slots{0, 1, 3, 4}));
}

TEST(EvictionLru, UnknownSlotsAreIgnored) {
  EvictionPolicy policy(Replacement::kLru);
  policy.touch(7, 1);
  policy.set_clean(7, true);
  policy.set_dead(7, true);
  policy.set_pinned(7, true);
  policy.set_priority(7, 3);
  policy.move(7, 1);
  policy.forget(7);
  EXPECT_FALSE(policy.is_admitted(7));
  EXPECT_FALSE(policy.explain(7, 1).is_resident);
  EXPECT_EQ(policy.size(), 0U);
}

// ---- data-aware ----

SetAttributes read_as(ReadPattern reading) {
  SetAttributes attributes;
  attributes.reading = reading;
  return attributes;
}

TEST(EvictionOrder, CleanGoesBeforeDirtyOfTheSameAgeAndOldDirtyBeforeFreshClean) {
  EvictionPolicy policy;
  policy.admit(0, 0, kMiB, 1 * kSecond);
  policy.admit(1, 0, kMiB, 1 * kSecond);
  policy.set_clean(1, true);
  EXPECT_EQ(all_victims(policy, 2 * kSecond), (Slots{1, 0}));
  policy.touch(1, 100 * kSecond);
  EXPECT_EQ(all_victims(policy, 101 * kSecond), (Slots{0, 1}));
}

TEST(EvictionOrder, WhatIsWrittenThroughOwesNoWriting) {
  EvictionPolicy policy;
  SetAttributes through;
  through.durability = Durability::kWriteThrough;
  policy.define(1, through);
  policy.admit(0, 0, kMiB, 1 * kSecond);
  policy.admit(1, 1, kMiB, 1 * kSecond);
  EXPECT_EQ(all_victims(policy, 5 * kSecond), (Slots{1, 0}));
  EXPECT_EQ(policy.explain(1, 5 * kSecond).write_cost, 0);
  EXPECT_GT(policy.explain(0, 5 * kSecond).write_cost, 0);
}

TEST(EvictionOrder, LoopsLoseTheNewestReadAndKeepWhatIsStillToCome) {
  EvictionPolicy policy;
  policy.define(1, read_as(ReadPattern::kLoopSequential));
  for (std::uint32_t slot = 0; slot < 5; ++slot) {
    policy.admit(slot, 1, kMiB, (slot + 1) * kSecond);
    policy.set_clean(slot, true);
  }
  for (std::uint32_t slot = 0; slot < 3; ++slot)
    policy.touch(slot, (10 + slot) * kSecond);
  const Slots order = all_victims(policy, 13 * kSecond);
  EXPECT_EQ(order.front(), 2U);
  // Objects read ahead of the scan are kept although they have not been read yet.
  policy.admit(5, 1, kMiB, 13 * kSecond);
  policy.set_clean(5, true);
  EXPECT_EQ(all_victims(policy, 13 * kSecond).front(), 2U);
}

TEST(EvictionOrder, AStreamLosesWhatWasReadFirstAndOfTheRestTheLast) {
  EvictionPolicy policy;
  policy.define(1, read_as(ReadPattern::kOnce));
  for (std::uint32_t slot = 0; slot < 5; ++slot) {
    policy.admit(slot, 1, kMiB, (slot + 1) * kSecond);
    policy.set_clean(slot, true);
  }
  policy.touch(0, 10 * kSecond);
  policy.touch(1, 11 * kSecond);
  EXPECT_EQ(all_victims(policy, 12 * kSecond), (Slots{0, 1, 4, 3, 2}));
  EXPECT_EQ(policy.explain(0, 12 * kSecond).cost, 0);
}

TEST(EvictionOrder, PrioritiesOfSetsAndObjectsWeigh) {
  EvictionPolicy policy;
  SetAttributes dear;
  dear.priority = 3;
  policy.define(1, dear);
  policy.admit(0, 1, kMiB, 1 * kSecond);
  policy.admit(1, 0, kMiB, 2 * kSecond);
  policy.admit(2, 0, kMiB, 3 * kSecond);
  policy.set_priority(1, 8);
  policy.set_priority(2, 1000);  // clamped to the maximum
  EXPECT_EQ(all_victims(policy, 10 * kSecond), (Slots{0, 1, 2}));
  policy.set_priority(1, -8);
  EXPECT_EQ(all_victims(policy, 10 * kSecond), (Slots{1, 0, 2}));
}

TEST(EvictionOrder, SmallObjectsCostMoreForTheirSize) {
  EvictionPolicy policy;
  policy.admit(0, 1, 32 * 1024, 1 * kSecond);
  policy.admit(1, 2, 64 * kMiB, 1 * kSecond);
  EXPECT_EQ(all_victims(policy, 5 * kSecond), (Slots{1, 0}));
  EvictionCosts flat;
  flat.write_ns = flat.read_ns = 0;
  policy.set_costs(flat);
  EXPECT_EQ(all_victims(policy, 5 * kSecond), (Slots{0, 1}));  // tie: the older object is evicted first
}

TEST(EvictionOrder, ASetMayBeLruOrMruWhateverIsClean) {
  for (const Replacement replacement : {Replacement::kLru, Replacement::kMru}) {
    EvictionPolicy policy;
    SetAttributes attributes;
    attributes.replacement = replacement;
    attributes.reading = ReadPattern::kOnce;
    policy.define(1, attributes);
    for (std::uint32_t slot = 0; slot < 6; ++slot) {
      policy.admit(slot, 1, (slot + 1) * kMiB, (slot + 1) * kSecond);
      policy.set_clean(slot, slot % 2 == 0);
    }
    policy.touch(1, 10 * kSecond);
    const Slots lru{0, 2, 3, 4, 5, 1};
    const Slots mru{1, 5, 4, 3, 2, 0};
    EXPECT_EQ(all_victims(policy, 11 * kSecond), replacement == Replacement::kLru ? lru : mru);
  }
}

TEST(EvictionOrder, AnUndefinedSetFollowsTheDefaultOne) {
  EvictionPolicy policy;
  policy.define(0, read_as(ReadPattern::kOnce));
  EXPECT_EQ(policy.reading(9), ReadPattern::kOnce);
  policy.define(9, read_as(ReadPattern::kRandom));
  EXPECT_EQ(policy.reading(9), ReadPattern::kRandom);
  policy.undefine(9);
  EXPECT_EQ(policy.reading(9), ReadPattern::kOnce);
}

TEST(EvictionOrder, MovingToAnotherSetChangesThePlace) {
  EvictionPolicy policy;
  policy.define(1, read_as(ReadPattern::kOnce));
  policy.admit(0, 0, kMiB, 1 * kSecond);
  policy.admit(1, 0, kMiB, 2 * kSecond);
  policy.touch(1, 3 * kSecond);
  EXPECT_EQ(all_victims(policy, 4 * kSecond), (Slots{0, 1}));
  policy.move(1, 1);
  EXPECT_EQ(all_victims(policy, 4 * kSecond), (Slots{1, 0}));
}

TEST(EvictionOrder, ExplanationsSayWhy) {
  EvictionPolicy policy;
  policy.admit(0, 0, kMiB, 1 * kSecond);
  policy.admit(1, 0, kMiB, 2 * kSecond);
  policy.touch(1, 3 * kSecond);
  const Explanation second = policy.explain(1, 7 * kSecond);
  EXPECT_TRUE(second.is_resident);
  EXPECT_EQ(second.rank, 1U);
  EXPECT_EQ(second.bytes_before, kMiB);
  EXPECT_DOUBLE_EQ(second.idle_seconds, 4);
  EXPECT_NE(second.text.find("1 object of 1 MiB is evicted before it"), std::string::npos) << second.text;
  EXPECT_NE(second.text.find("last read 4 s ago, and has no copy on disk yet"), std::string::npos) << second.text;
  const std::string first = policy.explain(0, 7 * kSecond).text;
  EXPECT_TRUE(
      first.starts_with("no other object is evicted before it; it was put 6 s ago and not read since, and has "))
      << first;
  policy.set_dead(1, true);
  EXPECT_EQ(policy.explain(1, 7 * kSecond).rank, 0U);
  EXPECT_NE(policy.explain(1, 7 * kSecond).text.find("without being written"), std::string::npos);
  policy.set_pinned(1, true);
  EXPECT_NE(policy.explain(1, 7 * kSecond).text.find("asked to keep it"), std::string::npos);
  for (std::uint32_t slot = 10; slot < 10 + 11'000; ++slot)
    policy.admit(slot, 0, kMiB, 1 * kSecond);
  policy.set_priority(0, 8);
  EXPECT_TRUE(policy.explain(0, 7 * kSecond).rank_is_lower_bound);
}

// ---- recomputable objects ----

TEST(EvictionDrops, IsTheCheaperOfTheTwoWaysOut) {
  // 1 MiB costs 1.15 ms to write and, if not predicted, 1.72 ms to read.
  struct Row {
    const char* what;
    double recompute_ms;  // 0: unknown
    bool would_drop;
    bool clean = false;
    std::uint64_t read_at_s = 0;  // 0: never
    ReadPattern reading = ReadPattern::kUnknown;
    double disk_ns_per_byte = 1;
    Durability durability = Durability::kWriteBack;
    Lifetime lifetime = Lifetime::kJob;
    Replacement replacement = Replacement::kDataAware;
  };
  const std::vector<Row> rows = {
      {"cheap", 1, true},
      {"just cheaper", 2.8, true},
      {"just dearer", 2.95, false},
      {"dear", 1000, false},
      {"nobody said what it takes", 0, false},
      {"there is a copy already", 0.001, false, true},
      {"read ten times as often as it would be written", 1.8, true, false, 90},
      {"too expensive to be recomputed ten times", 2, false, false, 90},
      {"read for the last time", 3'600'000, true, false, 90, ReadPattern::kOnce},
      {"a slow disk", 200, true, false, 0, ReadPattern::kUnknown, 100},
      {"a slow disk, and dear", 300, false, false, 0, ReadPattern::kUnknown, 100},
      {"written anyway", 0.001, false, false, 0, ReadPattern::kUnknown, 1, Durability::kWriteThrough},
      {"kept for ever", 0.001, false, false, 0, ReadPattern::kUnknown, 1, Durability::kWriteBack, Lifetime::kForever},
      {"ranked by recency alone", 1, true, false, 0, ReadPattern::kUnknown, 1, Durability::kWriteBack, Lifetime::kJob,
       Replacement::kLru},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    EvictionPolicy policy;
    SetAttributes attributes = read_as(row.reading);
    attributes.durability = row.durability;
    attributes.lifetime = row.lifetime;
    attributes.replacement = row.replacement;
    policy.define(1, attributes);
    EvictionCosts measured;
    measured.write_ns_per_byte = measured.read_ns_per_byte = row.disk_ns_per_byte;
    policy.set_measured(measured);
    policy.admit(0, 1, kMiB, kSecond);
    policy.set_clean(0, row.clean);
    if (row.read_at_s != 0) policy.touch(0, (row.read_at_s + 1) * kSecond);
    if (row.recompute_ms > 0) {
      policy.set_recompute(0, RecomputeCode::of_ns(static_cast<std::uint64_t>(row.recompute_ms * 1e6)));
    }
    EXPECT_EQ(policy.is_cheaper_to_drop(0, 101 * kSecond), row.would_drop);
    EXPECT_EQ(policy.explain(0, 101 * kSecond).would_drop, row.would_drop);
  }
}

TEST(EvictionDrops, WhatIsCheapToMakeAgainGoesFirst) {
  EvictionPolicy policy;
  for (std::uint32_t slot = 0; slot < 3; ++slot)
    policy.admit(slot, 0, kMiB, kSecond);
  policy.set_recompute(2, RecomputeCode::of_ns(100'000));
  policy.set_recompute(1, RecomputeCode::of_ns(1'000'000'000));  // dearer than the disk: ranked by the disk
  EXPECT_EQ(all_victims(policy, 5 * kSecond)[0], 2U);
  policy.set_recompute(2, 0);
  EXPECT_FALSE(policy.is_cheaper_to_drop(2, 5 * kSecond));
  EXPECT_EQ(all_victims(policy, 5 * kSecond), (Slots{0, 1, 2}));
}

TEST(TransferRates, AreThoseOfTheTimeInWhichAnythingMoves) {
  TransferRate rate;
  EXPECT_DOUBLE_EQ(rate.ns_per_byte(), 1);
  // Two concurrent transfers, 4 MiB in 8 ms together, then a long idle time.
  rate.begin(0);
  rate.begin(0);
  rate.end(4'194'304, 2 * kMiB);
  rate.end(8'388'608, 2 * kMiB);
  EXPECT_DOUBLE_EQ(rate.ns_per_byte(), 2);
  rate.begin(1000 * kSecond);
  rate.end(1000 * kSecond + 5 * kSecond, 0);  // a failed transfer
  EXPECT_DOUBLE_EQ(rate.ns_per_byte(), 2);
  rate.begin(2000 * kSecond);
  rate.end(2000 * kSecond + 4 * 4'194'304, 4 * kMiB);
  EXPECT_NEAR(rate.ns_per_byte(), 2 + 0.3 * 2, 1e-9);
}

// ---- inferred patterns ----

ReadPattern after(const Slots& touches, std::uint32_t readers = 1) {
  AccessPattern pattern;
  std::uint64_t now_ns = kSecond;
  for (std::size_t i = 0; i < touches.size(); ++i)
    pattern.touch(touches[i], static_cast<std::uint32_t>(i) % readers, now_ns += kSecond);
  return pattern.reading();
}

TEST(AccessPatterns, ScansLoopsAndRandomReadsAreToldApart) {
  EXPECT_EQ(after({}), ReadPattern::kUnknown);
  EXPECT_EQ(after({3, 4, 5}), ReadPattern::kUnknown);
  EXPECT_EQ(after({3, 4, 9, 12, 13, 20}), ReadPattern::kSequential);
  EXPECT_EQ(after({3, 4, 9, 12, 13, 20, 3, 4}), ReadPattern::kLoopSequential);
  EXPECT_EQ(after({1, 2, 3, 4, 1, 2, 3, 4, 1, 2}), ReadPattern::kLoopSequential);
  EXPECT_EQ(after({9, 2, 7, 1, 8, 3, 6}), ReadPattern::kRandom);
  EXPECT_EQ(after({3, 4, 9, 12, 13, 20, 14, 2, 11, 5, 19, 4, 7}), ReadPattern::kRandom);
}

TEST(AccessPatterns, TwoReadersSideBySideAreTwoScans) {
  Slots touches;
  for (std::uint32_t i = 1; i <= 12; ++i) {
    touches.push_back(i);
    touches.push_back(i + 30);
  }
  EXPECT_EQ(after(touches, 2), ReadPattern::kSequential);
  EXPECT_EQ(after(touches, 1), ReadPattern::kRandom);  // control
}

TEST(AccessPatterns, AnotherReaderThatBeginsAnewIsThenNextPassAndThePeriodIsMeasured) {
  AccessPattern pattern;
  for (std::uint32_t i = 0; i < 10; ++i)
    pattern.touch(100 + i, 1, (i + 1) * kSecond);
  EXPECT_EQ(pattern.reading(), ReadPattern::kSequential);
  for (std::uint32_t i = 0; i < 10; ++i)
    pattern.touch(100 + i, 2, (i + 21) * kSecond);
  EXPECT_EQ(pattern.reading(), ReadPattern::kLoopSequential);
  EXPECT_EQ(pattern.period_ns(), 20 * kSecond);
}

}  // namespace
}  // namespace entrepot
