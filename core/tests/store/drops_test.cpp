// Recomputable objects are dropped instead of written if that is expected to cost less; and what remains of them.
#include <array>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kCheap = kMillisecond;  // writing and reading 2 MiB is estimated at about 5 ms
constexpr std::uint64_t kDear = 60'000 * kMillisecond;
class Drops : public ::testing::Test {
 protected:
  explicit Drops(bool spills = true) : h(32 * kMiB, 0, spills) {}

  void put(std::uint64_t number, std::uint64_t bytes = 2 * kMiB, const char* name = "", bool replace = false) {
    SealSpec spec = h.blob_spec(client, numbered_id(number), session, bytes);
    spec.name = name;
    spec.replace = replace;
    const SealOutcome outcome = h.seal(client, spec);
    ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  }
  Status hint(std::uint64_t number, std::uint64_t recompute_ns) {
    HintSpec spec;
    spec.fields = kHintRecompute;
    spec.recompute_ns = recompute_ns;
    const std::array<IdBytes, 1> ids = {numbered_id(number)};
    return h.store->hint(ids, spec)[0];
  }
  void put_again(std::uint64_t number, std::uint64_t recompute_ns, std::uint64_t bytes = 2 * kMiB) {
    put(number, bytes);
    ASSERT_TRUE(hint(number, recompute_ns).is_ok());
  }
  bool reclaim(std::uint64_t bytes = 2 * kMiB) {
    const bool freed = h.store->pager().reclaim(bytes, Pager::Purpose::kNew);
    h.run_io();
    return freed;
  }
  // Requests a lease that may have to wait for writes.
  Code lease(std::uint64_t bytes) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease({client, 9}, bytes, bytes, 500, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    if (!got) h.run_io();
    if (!got) {
      h.clock.advance_ms(501);
      h.store->tick();
    }
    EXPECT_TRUE(got.has_value());
    return got ? got->code() : Code::kInternal;
  }
  [[nodiscard]] Code code(std::uint64_t number) const { return h.store->objects().lookup(numbered_id(number)).code; }
  [[nodiscard]] std::uint64_t drops() const { return h.store->pager().stats().dropped; }

  Harness h;
  std::uint32_t client = h.add_client();
  std::uint32_t session = h.open("run");
};

class DropsWithoutDisk : public Drops {
 protected:
  DropsWithoutDisk() : Drops(false) {}
};

TEST_F(Drops, TheCheapGoAndTheDearAreWritten) {
  put_again(1, kCheap);
  put_again(2, kDear);
  put(3);
  put_again(4, kCheap);
  EXPECT_TRUE(reclaim(32 * kMiB));
  (void)reclaim(32 * kMiB);
  EXPECT_EQ(code(1), Code::kObjectDropped);
  EXPECT_EQ(code(4), Code::kObjectDropped);
  EXPECT_EQ(code(2), Code::kOk);
  EXPECT_EQ(code(3), Code::kOk);
  EXPECT_FALSE(h.is_resident(numbered_id(2)) || h.is_resident(numbered_id(3)));
  EXPECT_EQ(h.spill.used(), 4 * kMiB) << "nothing was written of what was dropped";
  EXPECT_EQ(drops(), 2U);
  EXPECT_EQ(h.store->pager().stats().dropped_bytes, 4 * kMiB);
  EXPECT_EQ(h.store->parts().catalog.count(), 2U);
  EXPECT_EQ(h.store->parts().absent.dropped(), 2U);
  EXPECT_TRUE(h.get(numbered_id(2)).resident);
  const std::string status = h.store->status_json({});
  EXPECT_NE(status.find("\"dropped\":2,\"drops\":2,\"drops_bytes\":4194304"), std::string::npos) << status;
  h.expect_no_leak();
}

TEST_F(Drops, WhatIsDroppedSaysSoUntilItIsMadeAgainAndIsNotDroppedTwice) {
  put(1, 2 * kMiB, "features");
  ASSERT_TRUE(hint(1, kCheap).is_ok());
  EXPECT_NE(h.store->info_json(kA)->find("so it would be dropped"), std::string::npos) << *h.store->info_json(kA);
  EXPECT_TRUE(reclaim());
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    const LookupOutcome gone = h.get(kA);
    EXPECT_EQ(gone.code, Code::kObjectDropped);
    EXPECT_NE(gone.message.find("recomputing it (0.001 s"), std::string::npos) << gone.message;
    EXPECT_EQ(h.store->info_json(kA).code(), Code::kObjectDropped);
    EXPECT_EQ(h.store->names().names_of(kA), std::vector<std::string>{"features"}) << "who knows its name is told too";
    EXPECT_EQ(hint(1, kCheap).code(), Code::kObjectNotFound);
    EXPECT_EQ(h.restart().objects.lost, 0U);
  }
  put(1, 2 * kMiB, "features");
  ASSERT_TRUE(hint(1, kCheap).is_ok());
  EXPECT_EQ(h.store->parts().absent.dropped(), 0U);
  EXPECT_NE(h.store->info_json(kA)->find("\"made_again\":true"), std::string::npos);
  for (int life = 0; life < 2; ++life) {
    (void)reclaim();
    (void)reclaim();
    EXPECT_EQ(code(1), Code::kOk);
    h.restart();
  }
  EXPECT_EQ(h.spill.used(), 2 * kMiB);
  // Rewriting it in a retry does not change that.
  put(1, 2 * kMiB, "", true);
  ASSERT_TRUE(hint(1, kCheap).is_ok());
  (void)reclaim();
  EXPECT_EQ(code(1), Code::kOk);
  // Deleting the object resets that.
  EXPECT_TRUE(h.remove(kA));
  put_again(1, kCheap);
  EXPECT_TRUE(reclaim());
  EXPECT_EQ(code(1), Code::kObjectDropped);
  h.expect_no_leak();
}

TEST_F(Drops, FromTheScanOfThePinsOnNobodyReadsItsRecord) {
  put_again(1, kCheap);
  const ControlView view = ControlView::from_memory(h.memory).take();
  const DirectoryReader reader(view);
  const SlotSnapshot before = reader.find_existing(kA).value();
  int steps = 0;
  sync_hook = [&](std::string_view place) {
    if (!place.starts_with("drop.")) return;
    ++steps;
    EXPECT_FALSE(reader.find_existing(kA).has_value()) << place;
    EXPECT_FALSE(reader.existing_at(before.slot, before.generation(), kA).has_value()) << place;
    EXPECT_FALSE(reader.still_exists(before)) << "who looked before and pins now is too late, at " << place;
  };
  EXPECT_TRUE(reclaim());
  sync_hook = nullptr;
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(code(1), Code::kObjectDropped);
  h.expect_no_leak();
}

TEST_F(Drops, DeletedItIsNotThereLikeAnyOther) {
  put(1, 2 * kMiB, "a");
  ASSERT_TRUE(hint(1, kCheap).is_ok());
  EXPECT_TRUE(reclaim());
  EXPECT_TRUE(h.remove(kA));
  EXPECT_FALSE(h.remove(kA));
  EXPECT_EQ(code(1), Code::kObjectNotFound);
  EXPECT_TRUE(h.store->names().names_of(kA).empty());
  h.restart();
  EXPECT_EQ(code(1), Code::kObjectNotFound);
  put_again(2, kCheap);
  EXPECT_TRUE(reclaim());
  ASSERT_TRUE(h.store->remove_session("scope", "run").is_ok());
  EXPECT_EQ(code(2), Code::kObjectNotFound) << "it goes with its session";
  EXPECT_EQ(h.store->parts().absent.dropped(), 0U);
  h.expect_no_leak();
}

TEST_F(Drops, WhatIsReadKeptSharedWrittenOrTakenBackIsNotDropped) {
  for (std::uint64_t number = 1; number <= 6; ++number)
    put_again(number, kCheap);
  const auto position = h.pin(client, kA);
  HintSpec keep;
  keep.fields = kHintPinned;
  keep.pinned = true;
  const std::array<IdBytes, 1> second = {numbered_id(2)};
  ASSERT_TRUE(h.store->hint(second, keep)[0].is_ok());
  SealSpec shares;  // the third object's blob
  shares.id = numbered_id(7);
  shares.session = session;
  const std::uint32_t blob = h.store->parts().catalog.blobs_of(*h.store->objects().find(numbered_id(3)))[0];
  shares.buffers = {{blob, h.store->parts().blobs.generation(blob), 0, 100}};
  ASSERT_TRUE(h.seal(client, shares).status.is_ok());
  h.spill.at_once = false;
  const std::array<IdBytes, 1> fourth = {numbered_id(4)};
  ASSERT_TRUE(h.store->evict(fourth)[0].is_ok());  // its copy is being written
  ASSERT_TRUE(hint(5, RecomputeCode::kNotRecomputableNs).is_ok());
  EXPECT_TRUE(h.store->pager().reclaim(32 * kMiB, Pager::Purpose::kNew));
  EXPECT_EQ(code(6), Code::kObjectDropped) << "the control";
  EXPECT_EQ(drops(), 1U);
  h.run_io();
  (void)reclaim(32 * kMiB);
  for (std::uint64_t number = 1; number <= 5; ++number)
    EXPECT_EQ(code(number), Code::kOk) << number;
  EXPECT_TRUE(h.is_resident(kA) && h.is_resident(numbered_id(2)));
  h.pins(client).unpin(position);
  EXPECT_TRUE(reclaim(32 * kMiB));
  EXPECT_EQ(code(1), Code::kObjectDropped) << "nobody reads it any more";
  h.expect_no_leak();
}

TEST_F(Drops, ASetThatWantsCopiesGetsThem) {
  for (const bool through : {true, false}) {
    SetChange change;
    change.fields = kSetDurability | kSetLifetime;
    change.attributes.durability = through ? Durability::kWriteThrough : Durability::kWriteBack;
    change.attributes.lifetime = through ? Lifetime::kJob : Lifetime::kForever;
    ASSERT_TRUE(h.store->define_set(session, "", 0, change).is_ok());
    put_again(1, kCheap);
    (void)reclaim();
    (void)reclaim();
    EXPECT_EQ(code(1), Code::kOk);
    EXPECT_FALSE(h.is_resident(kA));
    EXPECT_TRUE(h.remove(kA));
  }
  h.expect_no_leak();
}

TEST_F(Drops, NothingIsWrittenAheadOfWhatWouldBeDropped) {
  for (std::uint64_t number = 1; number <= 14; ++number)
    put_again(number, kCheap);  // 28 of 32 MiB: above the mark at which background writes start
  h.run_io();
  EXPECT_EQ(h.spill.used(), 0U);
  for (std::uint64_t number = 1; number <= 14; ++number)
    ASSERT_TRUE(hint(number, kDear).is_ok());
  h.clock.advance_ms(100);
  h.run_io();
  EXPECT_GT(h.spill.used(), 4 * kMiB) << "the control";
  h.expect_no_leak();
}

TEST_F(Drops, AStreamOfCheapValuesNeverTouchesTheDisk) {
  for (std::uint64_t number = 1; number <= 64; ++number) {
    put_again(number, kCheap);
    h.clock.advance_ms(10);
  }
  EXPECT_EQ(h.spill.used(), 0U);
  EXPECT_GE(drops(), 48U);
  EXPECT_EQ(h.store->parts().catalog.count() + h.store->parts().absent.dropped(), 64U);
  h.expect_no_leak();
}

TEST_F(Drops, WhereNothingCanBeWrittenTheDearGoBeforeAValueDoesNotFit) {
  h.spill.write_failure = Status(Code::kStoreFull, "the disk is full", true);
  for (std::uint64_t number = 1; number <= 14; ++number)
    put(number);
  ASSERT_TRUE(hint(5, kDear).is_ok());
  EXPECT_EQ(lease(8 * kMiB), Code::kStoreFull) << "one is not enough";
  for (std::uint64_t number = 6; number <= 9; ++number)
    ASSERT_TRUE(hint(number, kDear).is_ok());
  EXPECT_EQ(lease(8 * kMiB), Code::kOk);
  EXPECT_GE(drops(), 2U);
  EXPECT_EQ(code(1), Code::kOk);
  EXPECT_EQ(h.spill.used(), 0U);
  h.spill.write_failure = Status();
  h.run_io();
  h.expect_no_leak();
}

TEST_F(DropsWithoutDisk, OnlyWhatCanBeMadeAgainGoes) {
  for (std::uint64_t number = 1; number <= 14; ++number)
    put(number);
  EXPECT_EQ(h.lease_error(client, 8 * kMiB).code(), Code::kStoreFull);
  ASSERT_TRUE(hint(3, kDear).is_ok());
  ASSERT_TRUE(hint(4, kDear).is_ok());
  ASSERT_TRUE(hint(4, RecomputeCode::kNotRecomputableNs).is_ok());  // revoked
  const auto position = h.pin(client, numbered_id(3));
  EXPECT_EQ(h.lease_error(client, 8 * kMiB).code(), Code::kStoreFull);
  h.pins(client).unpin(position);
  EXPECT_NE(h.store->info_json(numbered_id(3))->find("can be recomputed"), std::string::npos);
  h.restart();
  static const std::vector<ReportedLease> kNone;
  ASSERT_TRUE(h.store->reconnect(client, h.store->clients().find(client)->token, &kNone).is_ok());
  for (int i = 0; i < 2; ++i)  // there is memory for only one without dropping
    EXPECT_GE(h.lease(client, 2 * kMiB).length, 2 * kMiB);
  EXPECT_EQ(code(3), Code::kObjectDropped) << "what was said before the daemon died still holds";
  EXPECT_EQ(code(4), Code::kOk);
  EXPECT_EQ(code(1), Code::kOk);
  h.expect_no_leak();
}

TEST(RecomputeCodes, KeepTheirTimeToATenthOfAPercent) {
  EXPECT_EQ(RecomputeCode::of_ns(RecomputeCode::kNotRecomputableNs), 0U);
  EXPECT_EQ(RecomputeCode::of_ns(0), 1U);
  for (double ns = 1000; ns < 1e18; ns *= 1.7) {
    const double seconds = RecomputeCode::seconds(RecomputeCode::of_ns(static_cast<std::uint64_t>(ns)));
    EXPECT_NEAR(seconds * 1e9 / ns, 1, 1e-3) << ns;
  }
  EXPECT_GT(RecomputeCode::seconds(RecomputeCode::of_ns(RecomputeCode::kNotRecomputableNs - 1)), 1e10);
  SlotHints hints;
  hints.priority = -8;
  hints.recompute = 0xfffe;
  hints.recomputed = true;
  hints.consumers = 0xffff'ffff;
  EXPECT_EQ(SlotHints::of(hints.word()).word(), hints.word());
  EXPECT_EQ(SlotHints::of(hints.word()).recompute, 0xfffe);
  EXPECT_EQ(hints.drop_recompute_code(), 0) << "not a second time";
}

}  // namespace
}  // namespace entrepot::testing
