// The loader alone: in which order requests get memory, and what becomes of reads.
#include "store/paging/loader.h"

#include <algorithm>

#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

class Loading : public ::testing::Test {
 protected:
  Loading() {
    loader.on_changed([this](const IdBytes& id) { changed.push_back(id); });
  }
  void complete() {
    for (const SpillCompletion& done : p.end_io())
      loader.complete(done);
  }

  PagingParts p;
  std::vector<bool> asked;  // for room, and whether for a load ahead of a request
  Loader loader{{p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock, &p.spill,
                 [this](std::uint64_t, bool ahead) {
                   asked.push_back(ahead);
                   return false;
                 }}};
  std::vector<IdBytes> changed;
};

TEST_F(Loading, WhatIsReadIsHeldForItsRequester) {
  const std::uint32_t slot = p.put_spilled(1);
  loader.load(slot);
  EXPECT_TRUE(loader.is_loading(slot));
  EXPECT_FALSE(loader.is_idle() || loader.has_waiting());
  loader.load(slot);
  EXPECT_EQ(p.spill.waiting.size(), 1U) << "it is read once";
  complete();
  EXPECT_TRUE(p.parts.catalog.is_resident(slot));
  EXPECT_FALSE(loader.is_loading(slot));
  EXPECT_EQ(changed, std::vector{numbered_id(1)});
  EXPECT_EQ(loader.stats().loads, 1U);
  EXPECT_EQ(loader.stats().loaded_bytes, 2 * kMiB);
  EXPECT_EQ(loader.stats().prefetches, 0U);
  EXPECT_TRUE(p.candidates.policy().is_admitted(slot));
  EXPECT_TRUE(p.candidates.is_held(slot));
  p.clock.advance_ms(250);
  EXPECT_FALSE(p.candidates.is_held(slot));
  EXPECT_TRUE(asked.empty());
}

TEST_F(Loading, HoldsThatAreOverAreForgottenOnceThereAreMany) {
  constexpr std::uint32_t kKept = 1024;
  for (std::uint32_t slot = 0; slot < kKept; ++slot)
    p.candidates.hold(slot);
  p.clock.advance_ms(250);
  p.candidates.trim_held();
  EXPECT_EQ(p.candidates.remembered_holds(), kKept);
  p.candidates.hold(kKept);
  p.candidates.trim_held();
  EXPECT_EQ(p.candidates.remembered_holds(), 1U);
  EXPECT_TRUE(p.candidates.is_held(kKept));
}

TEST_F(Loading, NoRequestOvertakesAnother) {
  const std::uint32_t large = p.put_spilled(1, 6 * kMiB);
  const std::uint32_t small = p.put_spilled(2, kMiB);
  p.fill(100);
  loader.load(large);
  loader.load(small);
  EXPECT_TRUE(loader.has_waiting() && loader.is_idle());
  EXPECT_FALSE(asked.empty());
  EXPECT_EQ(std::count(asked.begin(), asked.end(), true), 0);
  p.remove(100);  // room for the small one
  loader.try_waiting();
  EXPECT_TRUE(loader.is_idle());
  p.remove(101);
  p.remove(102);
  p.remove(103);
  loader.try_waiting();
  EXPECT_FALSE(loader.has_waiting());
  complete();
  EXPECT_TRUE(p.parts.catalog.is_resident(large) && p.parts.catalog.is_resident(small));
}

TEST_F(Loading, ALoadAheadThatDoesNotFitIsForgotten) {
  const std::uint32_t slot = p.put_spilled(1, 6 * kMiB);
  p.fill(100);
  EXPECT_EQ(loader.load_ahead(slot), Loader::Ahead::kNoRoom);
  EXPECT_EQ(asked, std::vector{true});
  EXPECT_FALSE(loader.is_loading(slot));
}

TEST_F(Loading, ALoadAheadIsCountedAndNotHeld) {
  const std::uint32_t slot = p.put_spilled(1);
  EXPECT_EQ(loader.load_ahead(slot), Loader::Ahead::kLoading);
  EXPECT_EQ(loader.load_ahead(slot), Loader::Ahead::kLoading);
  EXPECT_EQ(loader.bytes_ahead(), 2 * kMiB);
  loader.cancel_waiting_ahead({});  // its read has begun
  complete();
  EXPECT_TRUE(p.parts.catalog.is_resident(slot));
  EXPECT_EQ(loader.bytes_ahead(), 0U);
  EXPECT_EQ(loader.stats().prefetches, 1U);
  EXPECT_FALSE(p.candidates.is_held(slot));
}

TEST_F(Loading, ARequestTakesOverALoadAhead) {
  const std::uint32_t slot = p.put_spilled(1);
  ASSERT_EQ(loader.load_ahead(slot), Loader::Ahead::kLoading);
  loader.load(slot);
  EXPECT_EQ(p.spill.waiting.size(), 1U);
  complete();
  EXPECT_EQ(loader.stats().prefetches, 0U);
  EXPECT_TRUE(p.candidates.is_held(slot));
  EXPECT_EQ(loader.bytes_ahead(), 0U);
}

TEST_F(Loading, ALoadAheadWaitsForTheSegmentThatIsMadeForIt) {
  const std::uint32_t kept = p.put_spilled(1, 6 * kMiB);
  const std::uint32_t cancelled = p.put_spilled(2, 6 * kMiB);
  p.source.at_once = false;
  EXPECT_EQ(loader.load_ahead(kept), Loader::Ahead::kWaiting);
  EXPECT_EQ(loader.load_ahead(cancelled), Loader::Ahead::kWaiting);
  loader.cancel_waiting_ahead({kept});
  EXPECT_TRUE(loader.is_loading(kept));
  EXPECT_FALSE(loader.is_loading(cancelled));
  p.source.finish();
  EXPECT_EQ(loader.load_ahead(kept), Loader::Ahead::kLoading);
  complete();
  EXPECT_TRUE(p.parts.catalog.is_resident(kept));
}

TEST_F(Loading, ASegmentThatCouldNotBeMadeIsNotWaitedFor) {
  const std::uint32_t slot = p.put_spilled(1, 6 * kMiB);
  p.source.at_once = false;
  loader.load(slot);
  ASSERT_EQ(p.source.waiting.size(), 1U);
  EXPECT_TRUE(loader.has_waiting());
  loader.provision_failed(p.source.waiting[0].segment);
  p.source.finish(Status(Code::kStoreFull, "the machine has no more"));
  p.pool.retry_memory();
  p.source.at_once = true;
  loader.try_waiting();
  EXPECT_FALSE(loader.has_waiting());
  complete();
  EXPECT_TRUE(p.parts.catalog.is_resident(slot));
}

TEST_F(Loading, AFailedReadIsReportedOnce) {
  const std::uint32_t slot = p.put_spilled(1);
  const std::uint64_t used = p.pool.blob_bytes();
  p.spill.read_failure = Status(Code::kInternal, "the disk does not answer");
  loader.load(slot);
  complete();
  EXPECT_FALSE(loader.is_loading(slot));
  EXPECT_EQ(loader.stats().failed_reads, 1U);
  EXPECT_EQ(changed, std::vector{numbered_id(1)});
  EXPECT_EQ(loader.take_failure(numbered_id(1)).code(), Code::kInternal);
  EXPECT_TRUE(loader.take_failure(numbered_id(1)).is_ok());
  EXPECT_EQ(p.pool.blob_bytes(), used);
  EXPECT_EQ(p.lookup(1), Code::kOk) << "another attempt may succeed";
}

TEST_F(Loading, AFailedReadAheadIsReportedToNobody) {
  const std::uint32_t slot = p.put_spilled(1);
  p.spill.read_failure = Status(Code::kInternal, "the disk does not answer");
  ASSERT_EQ(loader.load_ahead(slot), Loader::Ahead::kLoading);
  complete();
  EXPECT_EQ(loader.stats().failed_reads, 1U);
  EXPECT_FALSE(loader.is_loading(slot));
  EXPECT_TRUE(loader.take_failure(numbered_id(1)).is_ok()) << "a later reader starts a load of its own";
}

TEST_F(Loading, FailuresThatNobodyTakesAreForgotten) {
  constexpr std::uint64_t kLast = 1025;  // one more than are kept
  Loader bare({p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock, nullptr, {}});
  for (std::uint64_t number = 1; number <= kLast; ++number) {
    bare.load(p.put_spilled(number, 64 * kKiB));
    p.remove(number);
  }
  EXPECT_EQ(bare.take_failure(numbered_id(kLast)).code(), Code::kObjectLost);
  EXPECT_TRUE(bare.take_failure(numbered_id(1)).is_ok());
}

TEST_F(Loading, ADamagedCopyEndsTheObject) {
  const std::uint32_t slot = p.put_spilled(1);
  p.spill.read_failure = Status(Code::kCorruptData, "wrong checksum");
  loader.load(slot);
  complete();
  EXPECT_NE(p.lookup(1), Code::kOk);
  EXPECT_EQ(p.parts.blobs.live(), 0U);
}

TEST_F(Loading, WhoWaitsForAnObjectThatEndsIsNotified) {
  const std::uint32_t slot = p.put_spilled(1);
  const std::uint64_t used = p.pool.blob_bytes();
  loader.load(slot);
  loader.object_ended(slot);
  p.remove(1);
  EXPECT_EQ(changed, std::vector{numbered_id(1)});
  EXPECT_FALSE(loader.is_loading(slot));
  complete();
  EXPECT_EQ(p.pool.blob_bytes(), used);
  EXPECT_EQ(p.parts.blobs.live(), 0U);
}

TEST_F(Loading, WithoutABackendEveryLoadFails) {
  const std::uint32_t slot = p.put_spilled(1);
  Loader bare({p.parts.catalog, p.parts.blobs, p.residency, p.pool, p.candidates, p.clock, nullptr, {}});
  bare.load(slot);
  EXPECT_EQ(bare.take_failure(numbered_id(1)).code(), Code::kObjectLost);
  EXPECT_FALSE(bare.is_loading(slot));
}

}  // namespace
}  // namespace entrepot::testing
