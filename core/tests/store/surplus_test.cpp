// Free memory beyond the warm target is returned to the machine once it was not used for a while.
#include <algorithm>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kSecondMs = 1'000;
constexpr std::uint64_t kGiB = 1024 * kMiB;

// Puts and deletes values to get free segments.
class Surplus : public ::testing::Test {
 protected:
  explicit Surplus(std::uint64_t capacity = 8 * kGiB, std::uint64_t warm = kGiB) : h(capacity, warm) { warm_up(); }

  void warm_up() {
    for (int round = 0; round < 64; ++round)
      h.store->run_pending();
  }

  // Puts each value in its own segments, returned by their writer.
  void put_and_delete(const std::vector<std::uint64_t>& sizes) {
    const auto client = h.add_client();
    const auto session = h.open("run");
    std::vector<IdBytes> ids;
    for (const std::uint64_t size : sizes) {
      const SealSpec spec = h.blob_spec(client, numbered_id(++last_), session, size);
      ASSERT_TRUE(h.seal(client, spec).status.is_ok());
      ids.push_back(spec.id);
      h.store->run_pending();
    }
    h.kill(client);
    for (const IdBytes& id : ids)
      ASSERT_TRUE(h.remove(id));
    h.store->run_pending();
  }

  // Runs the daemon's loop for this long, sleeping until each deadline. Returns how often it woke up.
  std::uint32_t run_for(std::uint64_t ms) {
    const std::uint64_t end = h.clock.monotonic_ns() + ms * 1'000'000;
    std::uint32_t wakes = 0;
    while (true) {
      const std::uint64_t next = std::max(h.store->next_deadline_ns(), h.clock.monotonic_ns());
      if (next > end) break;
      h.clock.advance_ms((next - h.clock.monotonic_ns() + 999'999) / 1'000'000);
      const std::uint64_t before = free_bytes();
      h.store->tick();
      h.store->run_pending();
      ++wakes;
      const std::uint64_t after = free_bytes();
      most_at_once = std::max(most_at_once, before - std::min(before, after));
    }
    if (h.clock.monotonic_ns() < end) h.clock.advance_ms((end - h.clock.monotonic_ns()) / 1'000'000);
    return wakes;
  }

  [[nodiscard]] std::uint64_t free_bytes() const {
    const auto summary = h.store->pool().summary();
    return summary.contains("free") ? summary.at("free").bytes : 0;
  }

  Harness h;
  std::uint64_t most_at_once = 0;

 private:
  std::uint64_t last_ = 0;
};

TEST_F(Surplus, GoesBackAfterACalmWhileDownToTheTarget) {
  const std::uint64_t before = free_bytes();
  EXPECT_GE(before, h.store->pool().warm_target_bytes());
  put_and_delete(std::vector<std::uint64_t>(100, 60 * kMiB));
  EXPECT_GT(free_bytes(), 6 * kGiB);
  run_for(29 * kSecondMs);
  EXPECT_GT(free_bytes(), 6 * kGiB) << "not calm for long enough";
  run_for(10 * kSecondMs);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(h.source.in_use(), h.store->pool().committed_bytes());
  EXPECT_LE(most_at_once, 256 * kMiB);
  h.expect_no_leak();
}

TEST_F(Surplus, IsNotMadeAgainAndWakesNobodyOnceItIsGone) {
  put_and_delete(std::vector<std::uint64_t>(50, 60 * kMiB));
  put_and_delete({3 * kGiB, 700 * kMiB, 300 * kMiB, 200 * kMiB});
  run_for(100 * kSecondMs);
  const auto before = h.source.files;
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  // Sessions with a TTL are checked at least once a minute.
  EXPECT_LE(run_for(600 * kSecondMs), 11U);
  EXPECT_EQ(h.source.files, before);
  h.expect_no_leak();
}

TEST_F(Surplus, GoesBackAlthoughLittleOfItIsUsedAgainAndAgain) {
  put_and_delete(std::vector<std::uint64_t>(50, 60 * kMiB));
  const std::uint64_t free = free_bytes();
  run_for(20 * kSecondMs);
  put_and_delete({60 * kMiB});
  EXPECT_EQ(free_bytes(), free);
  for (int round = 0; round < 2; ++round) {
    run_for(10 * kSecondMs);
    put_and_delete({60 * kMiB});
  }
  EXPECT_LE(free_bytes(), kGiB + 2 * h.store->pool().small_segment_bytes());
  h.expect_no_leak();
}

TEST_F(Surplus, StaysWhileAsMuchIsUsedAgainAndAgain) {
  const std::vector<std::uint64_t> values(50, 60 * kMiB);
  put_and_delete(values);
  const auto made = h.source.files;
  for (int round = 0; round < 5; ++round) {
    run_for(20 * kSecondMs);
    put_and_delete(values);
  }
  EXPECT_EQ(h.source.files, made);
  h.expect_no_leak();
}

TEST_F(Surplus, GoesBackAtOnceWhileTheMachineIsShortOfMemory) {
  put_and_delete(std::vector<std::uint64_t>(20, 60 * kMiB));
  run_for(5 * kSecondMs);
  h.source.is_short = true;
  run_for(2 * kSecondMs);
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  EXPECT_LE(most_at_once, 256 * kMiB);
  h.expect_no_leak();
}

TEST_F(Surplus, LeasesOfWhatAClientHasAlreadyPutNothingOff) {
  const auto client = h.add_client();
  h.lease(client, kMiB);
  put_and_delete(std::vector<std::uint64_t>(50, 60 * kMiB));
  for (int round = 0; round < 4; ++round) {
    h.lease(client, kMiB);
    h.store->run_pending();
    run_for(10 * kSecondMs);
  }
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  h.expect_no_leak();
}

TEST_F(Surplus, IsAbsentWhereNoMoreIsFreeThanIsKeptWarm) {
  run_for(100 * kSecondMs);
  const auto before = h.source.files;
  const auto client = h.add_client();
  const LeaseGrant grant = h.lease(client, 60 * kMiB);
  ASSERT_TRUE(h.store->unlease(client, grant.segment, 0, 0, true).is_ok());
  h.store->run_pending();
  run_for(100 * kSecondMs);
  for (const auto& [segment, bytes] : before)
    EXPECT_TRUE(h.source.files.contains(segment)) << segment.first << " of " << bytes;
  h.expect_no_leak();
}

TEST_F(Surplus, ALargeOneThatIsFarTooLargeIsMadeAnewInTheUsualSize) {
  put_and_delete({6 * kGiB});
  run_for(60 * kSecondMs);
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  const auto client = h.add_client();
  const auto made = h.source.files.size();
  h.lease(client, 600 * kMiB, 600 * kMiB);
  EXPECT_EQ(h.source.files.size(), made) << "a lease of two thirds of what is kept warm had to wait";
  h.expect_no_leak();
}

TEST_F(Surplus, GoesBackAfterTheDaemonsDeathToo) {
  put_and_delete(std::vector<std::uint64_t>(100, 60 * kMiB));
  h.restart();
  EXPECT_GT(free_bytes(), 6 * kGiB);
  run_for(29 * kSecondMs);
  EXPECT_GT(free_bytes(), 6 * kGiB);
  run_for(10 * kSecondMs);
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  h.expect_no_leak();
}

TEST_F(Surplus, WhatWasMadeForSomebodyWhoIsGoneGoesBack) {
  h.source.at_once = false;
  const auto client = h.add_client();
  h.store->lease({client, 7}, 4 * kGiB, 4 * kGiB, 60'000, [](const Result<LeaseGrant>&) { FAIL() << "it is gone"; });
  h.store->disconnected(client, 7);
  h.source.finish_all();
  h.source.at_once = true;
  h.store->run_pending();
  EXPECT_GT(free_bytes(), 4 * kGiB);
  run_for(60 * kSecondMs);
  EXPECT_LE(free_bytes(), kGiB + h.store->pool().small_segment_bytes());
  h.expect_no_leak();
}

TEST_F(Surplus, TheWarmestIsKept) {
  h.source.kind = MemoryKind::kHugePages;
  put_and_delete(std::vector<std::uint64_t>(100, 60 * kMiB));
  run_for(60 * kSecondMs);
  std::uint64_t small_pages = 0;
  for (const auto& [key, bytes] : h.source.files) {
    if (bytes == 64 * kMiB && h.store->pool().kind(key.first) != MemoryKind::kHugePages) ++small_pages;
  }
  EXPECT_EQ(small_pages, 0U);
  h.expect_no_leak();
}

TEST_F(Surplus, NothingGoesBackWhereThatIsSwitchedOff) {
  h.options.give_back_after_seconds = 0;
  h.restart();
  put_and_delete(std::vector<std::uint64_t>(100, 60 * kMiB));
  run_for(3'600 * kSecondMs);
  EXPECT_GT(free_bytes(), 6 * kGiB);
  h.expect_no_leak();
}

class SurplusWithoutWarmth : public Surplus {
 protected:
  SurplusWithoutWarmth() : Surplus(64 * kMiB, 0) {}
};

TEST_F(SurplusWithoutWarmth, AllThatIsFreeGoesBack) {
  put_and_delete({kMiB, 20 * kMiB, 3 * kMiB});
  EXPECT_GT(free_bytes(), 20 * kMiB);
  run_for(60 * kSecondMs);
  EXPECT_EQ(free_bytes(), 0U);
  EXPECT_EQ(h.source.in_use(), 0U);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
