// Read-ahead: sequential readers get the next objects before they ask, others do not, at no cost to anyone.
#include "store/paging/read_ahead.h"

#include <algorithm>
#include <random>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::vector<std::uint32_t> ahead(const ReadAhead& runs, std::uint64_t now, std::size_t most = 3) {
  std::vector<std::uint32_t> slots;
  std::size_t count = 0;
  runs.for_each_ahead(
      now, [&](std::size_t) { count = 0; },
      [&](std::uint32_t slot) {
        if (count++ == most) return false;
        slots.push_back(slot);
        return true;
      });
  return slots;
}

ReadAhead hundred(std::uint32_t set = 1) {
  ReadAhead runs;
  for (std::uint32_t i = 0; i < 100; ++i)
    runs.add(i, set, 1000 + 2 * i);  // gaps in the order, where other objects were sealed
  return runs;
}

TEST(ReadAhead, TwoStepsMakeARunForwardOrBackward) {
  ReadAhead runs = hundred();
  runs.touch(10, 1, ReadPattern::kUnknown, kSecond);
  runs.touch(11, 1, ReadPattern::kUnknown, kSecond);
  EXPECT_FALSE(runs.is_active(kSecond));
  runs.touch(12, 1, ReadPattern::kUnknown, kSecond);
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{13, 14, 15}));
  runs.touch(12, 1, ReadPattern::kUnknown, kSecond);  // repeated access is neither a step nor a break
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{13, 14, 15}));

  ReadAhead back = hundred();
  for (const std::uint32_t slot : {50U, 49U, 48U})
    back.touch(slot, 1, ReadPattern::kUnknown, kSecond);
  EXPECT_EQ(ahead(back, kSecond), (std::vector<std::uint32_t>{47, 46, 45}));
  for (const std::uint32_t slot : {2U, 1U, 0U})
    back.touch(slot, 2, ReadPattern::kUnknown, 2 * kSecond);
  EXPECT_EQ(ahead(back, 2 * kSecond), (std::vector<std::uint32_t>{47, 46, 45})) << "before the first there is nothing";
}

TEST(ReadAhead, ADeclaredScanNeedsNoProofAndARandomSetHasNone) {
  ReadAhead runs = hundred();
  runs.touch(7, 1, ReadPattern::kLoopSequential, kSecond);
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{8, 9, 10}));
  ReadAhead random = hundred();
  for (const std::uint32_t slot : {1U, 2U, 3U, 4U})
    random.touch(slot, 1, ReadPattern::kRandom, kSecond);
  EXPECT_FALSE(random.is_active(kSecond));
}

TEST(ReadAhead, ARunEndsWhenItsReaderJumpsAboutOrIsQuiet) {
  ReadAhead runs = hundred();
  for (const std::uint32_t slot : {1U, 2U, 3U})
    runs.touch(slot, 1, ReadPattern::kUnknown, kSecond);
  EXPECT_TRUE(runs.is_active(2 * kSecond));
  EXPECT_FALSE(runs.is_active(4 * kSecond)) << "nobody used it for longer than two seconds";
  runs.touch(4, 1, ReadPattern::kUnknown, 4 * kSecond);
  EXPECT_TRUE(runs.is_active(4 * kSecond));
  runs.touch(90, 1, ReadPattern::kUnknown, 4 * kSecond + 1);
  EXPECT_FALSE(runs.is_active(4 * kSecond + 1));
}

TEST(ReadAhead, TwoInputsReadSideBySideAreTwoRuns) {
  ReadAhead runs = hundred();
  for (std::uint32_t i = 0; i < 4; ++i) {
    runs.touch(10 + i, 1, ReadPattern::kUnknown, kSecond + 2 * i);
    runs.touch(60 + i, 1, ReadPattern::kUnknown, kSecond + 2 * i + 1);
  }
  EXPECT_EQ(ahead(runs, 2 * kSecond), (std::vector<std::uint32_t>{64, 65, 66, 14, 15, 16}));
}

// In a small set, random reads sometimes land next to an earlier run.
TEST(ReadAhead, RandomReadsAreHardlyEverARun) {
  ReadAhead runs = hundred();
  std::mt19937 random(11);
  std::uint32_t active = 0;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    runs.touch(static_cast<std::uint32_t>(random() % 100), 1 + i % 3, ReadPattern::kUnknown, kSecond + i);
    active += runs.is_active(kSecond + i) ? 1 : 0;
  }
  EXPECT_LT(active, 200U);
}

TEST(ReadAhead, ReadersThatShareARunMoveItTogether) {
  ReadAhead runs = hundred();
  for (const std::uint32_t slot : {0U, 1U, 2U, 4U, 3U, 6U, 5U, 7U})
    runs.touch(slot, 1 + slot % 2, ReadPattern::kUnknown, kSecond);
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{8, 9, 10}));
}

TEST(ReadAhead, WhatEndsOrMovesAwayIsNotAhead) {
  ReadAhead runs = hundred();
  for (const std::uint32_t slot : {1U, 2U, 3U})
    runs.touch(slot, 1, ReadPattern::kUnknown, kSecond);
  runs.remove(4);
  runs.move(5, 9);
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{6, 7, 8}));
  runs.remove(3);  // a consumer deletes the object it has read
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{6, 7, 8}));
  runs.touch(6, 1, ReadPattern::kUnknown, kSecond);
  EXPECT_EQ(ahead(runs, kSecond), (std::vector<std::uint32_t>{7, 8, 9}));
  for (std::uint32_t slot = 0; slot < 100; ++slot)
    runs.remove(slot);
  EXPECT_FALSE(runs.is_active(kSecond));
}

// Read-ahead candidates always exist, belong to one set, and are in order.
TEST(ReadAhead, WhateverHappensWhatIsAheadIsThere) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 generator(seed);
    const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
    ReadAhead runs;
    std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> existing;
    std::uint32_t order = 0;
    std::uint64_t now = kSecond;
    std::uint32_t at = 0;
    for (int step = 0; step < 2000; ++step) {
      const std::uint32_t slot = random() % 40;
      const std::uint32_t what = random() % 10;
      if (what < 3) {
        existing[slot] = {random() % 3, ++order};
        runs.add(slot, existing[slot].first, existing[slot].second);
      } else if (what == 3) {
        existing.erase(slot);
        runs.remove(slot);
      } else if (what == 4 && existing.contains(slot)) {
        existing[slot].first = random() % 3;
        runs.move(slot, existing[slot].first);
      } else {
        at = random() % 4 == 0 ? slot : at + 1;
        runs.touch(at % 40, random() % 3, random() % 5 == 0 ? ReadPattern::kSequential : ReadPattern::kUnknown, now);
      }
      now += random() % 100'000'000;
      std::pair<std::uint32_t, std::uint32_t> last{};
      bool first = true;
      int direction = 0;
      runs.for_each_ahead(
          now,
          [&](std::size_t) {
            first = true;
            direction = 0;
          },
          [&](std::uint32_t candidate) {
            EXPECT_TRUE(existing.contains(candidate)) << "seed " << seed;
            const auto place = existing[candidate];
            if (!first) {
              EXPECT_EQ(place.first, last.first);
              const int its = place.second > last.second ? 1 : -1;
              EXPECT_TRUE(direction == 0 || direction == its);
              direction = its;
            }
            first = false;
            last = place;
            return true;
          });
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    }
  }
}

// ---- in the store ----

class Prefetch : public ::testing::Test {
 protected:
  // Puts 64 objects, of which sixteen fit in memory.
  void SetUp() override {
    for (std::uint64_t i = 0; i < 64; ++i)
      put(i);
    h.clock.advance_ms(3000);
    h.store->tick();
    ASSERT_GT(h.store->parts().blobs.spilled_bytes(), 90 * kMiB);
  }
  void put(std::uint64_t number) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease({client, 9}, 2 * kMiB, 2 * kMiB, 1000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    if (!got) h.run_io();
    ASSERT_TRUE(got && got->is_ok());
    SealSpec spec;
    spec.id = numbered_id(number);
    spec.session = session;
    spec.blobs = {{(*got)->segment, (*got)->offset, 2 * kMiB}};
    spec.buffers = {{kNewBlobBit, 0, 0, 2 * kMiB}};
    spec.tree = "tree";
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  }
  void read(std::uint64_t number) {
    const LookupOutcome got = h.get(numbered_id(number));
    ASSERT_TRUE(got.resident) << number << ": " << got.message;
    use(number);
    h.run_io();
  }
  // Like a client's get of a resident object: a note, no message.
  void use(std::uint64_t number) {
    const LookupOutcome got = h.store->objects().lookup(numbered_id(number));
    h.pins(client).record_access(got.slot, got.generation);
  }
  [[nodiscard]] bool resident(std::uint64_t number) const { return h.is_resident(numbered_id(number)); }
  [[nodiscard]] std::uint64_t prefetches() const { return h.store->pager().stats().prefetches; }

  Harness h{32 * kMiB, 0, true};
  std::uint32_t client = h.add_client();
  std::uint32_t session = h.open("run");
};

TEST_F(Prefetch, WhoReadsInOrderFindsWhatFollows) {
  read(0);
  read(1);
  EXPECT_EQ(prefetches(), 0U) << "two reads are no run";
  read(2);
  EXPECT_TRUE(resident(3) && resident(4));
  EXPECT_FALSE(resident(5)) << "no more than a quarter of the memory, for two objects";
  const std::uint64_t before = h.store->pager().stats().loads;
  for (std::uint64_t i = 3; i < 40; ++i) {
    EXPECT_TRUE(resident(i)) << i;
    use(i);
    h.clock.advance_ms(70);
    ASSERT_LE(h.store->next_deadline_ns(), h.clock.monotonic_ns()) << "reads that send no message are looked for";
    h.store->tick();
    h.run_io();
  }
  EXPECT_LE(h.store->pager().stats().loads - before, 40U) << "nothing was loaded twice";
  h.expect_no_leak();
}

TEST_F(Prefetch, WhoReadsHereAndTherePaysNothing) {
  std::mt19937 random(4);
  std::uint64_t last = 0;
  for (int i = 0; i < 60; ++i) {
    std::uint64_t number = random() % 64;
    while (std::max(number, last) - std::min(number, last) <= 8)
      number = random() % 64;
    last = number;
    read(number);
  }
  EXPECT_EQ(prefetches(), 0U);
  h.expect_no_leak();
}

TEST_F(Prefetch, WhatIsAheadStaysUntilItIsReadOrTheRunIsOver) {
  for (std::uint64_t i = 0; i < 3; ++i)
    read(i);
  ASSERT_TRUE(resident(3) && resident(4));
  for (std::uint64_t i = 100; i < 130; ++i) {
    put(i);
    ASSERT_TRUE(resident(3) && resident(4)) << i;
  }
  h.clock.advance_ms(2100);
  h.store->tick();
  for (std::uint64_t i = 130; i < 170; ++i)
    put(i);
  EXPECT_FALSE(resident(3) || resident(4));
  h.expect_no_leak();
}

TEST_F(Prefetch, WhatIsPinnedIsNoPriceForIt) {
  std::vector<std::uint32_t> positions;
  for (std::uint64_t i = 0; i < 64; ++i) {
    if (resident(i)) positions.push_back(h.pin(client, numbered_id(i)));
  }
  h.pins(client).unpin(positions.back());  // memory for one object
  positions.pop_back();
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < 60 && out.size() < 3; ++i) {
    if (!resident(i)) out.push_back(i);
  }
  ASSERT_EQ(out, (std::vector<std::uint64_t>{0, 1, 2}));
  for (const std::uint64_t i : out) {
    const LookupOutcome got = h.get(numbered_id(i));
    ASSERT_TRUE(got.resident) << i << ": " << got.message;
    h.clock.advance_ms(300);
  }
  EXPECT_EQ(prefetches(), 0U);
  for (const std::uint32_t position : positions)
    h.pins(client).unpin(position);
  h.expect_no_leak();
}

TEST_F(Prefetch, WhoAsksOvertakesWhatNobodyAskedFor) {
  for (std::uint64_t i = 0; i < 2; ++i)
    read(i);
  h.spill.at_once = false;
  std::optional<std::vector<LookupOutcome>> third;
  h.store->lookup({client, 1}, {numbered_id(2)}, 0, 1000, [&](auto outcomes) { third = std::move(outcomes); });
  h.store->run_pending();
  ASSERT_FALSE(third);
  std::size_t reads = 0;
  for (const FakeSpillBackend::Job& job : h.spill.waiting)
    reads += job.is_read ? 1 : 0;
  EXPECT_EQ(reads, 3U) << "the one that was asked for, and two ahead";
  // A request for an object whose load is in flight shares that read.
  std::optional<std::vector<LookupOutcome>> fourth;
  h.store->lookup({client, 2}, {numbered_id(3)}, 0, 1000, [&](auto outcomes) { fourth = std::move(outcomes); });
  h.spill.at_once = true;
  h.run_io();
  ASSERT_TRUE(third && fourth);
  EXPECT_TRUE((*third)[0].resident && (*fourth)[0].resident);
  h.expect_no_leak();
}

TEST_F(Prefetch, DeletedOnItsWay) {
  for (std::uint64_t i = 0; i < 2; ++i)
    read(i);
  h.spill.at_once = false;
  std::optional<std::vector<LookupOutcome>> third;
  h.store->lookup({client, 1}, {numbered_id(2)}, 0, 1000, [&](auto outcomes) { third = std::move(outcomes); });
  h.store->run_pending();
  for (std::uint64_t i = 3; i < 8; ++i)
    EXPECT_TRUE(h.remove(numbered_id(i)));
  h.spill.at_once = true;
  h.run_io();
  EXPECT_TRUE(third && (*third)[0].resident);
  h.expect_no_leak();
}

TEST_F(Prefetch, AReadThatFailsAheadIsTriedWhenSomebodyAsks) {
  for (std::uint64_t i = 0; i < 2; ++i)
    read(i);
  h.spill.at_once = false;
  std::optional<std::vector<LookupOutcome>> third;
  h.store->lookup({client, 1}, {numbered_id(2)}, 0, 1000, [&](auto outcomes) { third = std::move(outcomes); });
  h.store->run_pending();
  h.spill.read_failure = Status(Code::kInternal, "the disk does not answer");
  h.spill.at_once = true;
  h.spill.finish_all();
  h.store->take_spill_completions();
  h.spill.read_failure = Status();
  h.run_io();
  EXPECT_TRUE(third.has_value());
  for (std::uint64_t i = 2; i < 8; ++i)
    read(i);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
