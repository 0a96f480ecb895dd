// Life cycle of an object: sealed once, found, replaced, deleted while pinned, its blobs shared.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

TEST(LifeCycle, SealedObjectsAreFoundAndDeletedOnesLeaveNothing) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes small = numbered_id(1);
  const IdBytes large = numbered_id(2);
  EXPECT_TRUE(h.seal(client, h.inline_spec(small, session, "hello")).status.is_ok());
  EXPECT_TRUE(h.seal(client, h.blob_spec(client, large, session, 100 * kKiB)).status.is_ok());
  EXPECT_TRUE(h.has(small));
  EXPECT_TRUE(h.has(large));
  EXPECT_EQ(h.store->parts().catalog.count(), 2U);
  EXPECT_EQ(h.store->parts().catalog.payload_bytes(), 5 + 100 * kKiB);
  EXPECT_TRUE(h.remove(large));
  EXPECT_FALSE(h.remove(large));
  EXPECT_FALSE(h.has(large));
  EXPECT_TRUE(h.has(small));
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  h.expect_no_leak();
}

TEST(LifeCycle, RepeatedSealIsSuccessAndOtherContentIsRefusedWithItsPlace) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes id = numbered_id(1);
  const SealSpec spec = h.blob_spec(client, id, session, 70 * kKiB);
  const SealOutcome first = h.seal(client, spec);
  ASSERT_TRUE(first.status.is_ok()) << first.status.to_string();
  const SealOutcome again = h.seal(client, spec);  // as after a reconnect
  EXPECT_TRUE(again.status.is_ok()) << again.status.to_string();
  EXPECT_EQ(again.slot, first.slot);
  EXPECT_EQ(again.generation, first.generation);

  const SealSpec other = h.blob_spec(client, id, session, 70 * kKiB);
  const SealOutcome refused = h.seal(client, other);
  EXPECT_EQ(refused.status.code(), Code::kObjectExists);
  EXPECT_NE(refused.status.message().find(to_hex(id)), std::string::npos);
  EXPECT_EQ(refused.slot, first.slot);
  EXPECT_EQ(refused.generation, first.generation);
  // A failed seal leaves nothing behind, and its range stays leased.
  EXPECT_TRUE(h.store->unlease(client, other.blobs[0].segment, other.blobs[0].offset, 128 * kKiB, false).is_ok());
  h.expect_no_leak();
}

TEST(LifeCycle, ADeleteOfOneGenerationSparesWhatReplacedIt) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes id = numbered_id(1);
  const SealOutcome first = h.seal(client, h.inline_spec(id, session, "first"));
  ASSERT_TRUE(first.status.is_ok());
  SealSpec replacement = h.inline_spec(id, session, "second");
  replacement.replace = true;
  const SealOutcome second = h.seal(client, replacement);
  ASSERT_TRUE(second.status.is_ok());
  const auto removed = [&](const IdBytes& of, std::uint32_t generation) {
    const ObjectLife life{of, generation};
    return h.store->remove(std::span(&life, 1)).front() != 0;
  };
  EXPECT_FALSE(removed(id, first.generation));
  EXPECT_FALSE(removed(numbered_id(2), second.generation));
  EXPECT_TRUE(h.has(id));
  EXPECT_TRUE(removed(id, second.generation));
  EXPECT_FALSE(removed(id, second.generation)) << "asked twice, as after a reconnect";
  EXPECT_FALSE(h.has(id));
  h.expect_no_leak();
}

TEST(LifeCycle, EveryLifeOfAnIdHasItsOwnGeneration) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  std::vector<std::uint32_t> generations;
  for (int round = 0; round < 5; ++round) {
    // Seal another object in between, so that slots are reused.
    EXPECT_TRUE(h.seal(client, h.inline_spec(numbered_id(100 + static_cast<std::uint64_t>(round)), session, "x"))
                    .status.is_ok());
    const SealOutcome sealed = h.seal(client, h.inline_spec(numbered_id(1), session, "abc"));
    ASSERT_TRUE(sealed.status.is_ok());
    for (const std::uint32_t other : generations)
      EXPECT_NE(sealed.generation, other);
    generations.push_back(sealed.generation);
    EXPECT_TRUE(h.remove(numbered_id(1)));
  }
  h.expect_no_leak();
}

TEST(LifeCycle, ReplacePublishesANewGenerationAndFreesTheOldOneAfterItsPin) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes id = numbered_id(1);
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, id, session, 64 * kKiB)).status.is_ok());
  const std::uint32_t before = h.generation(id);
  const std::uint32_t position = h.pin(client, id);
  SealSpec next = h.blob_spec(client, id, session, 128 * kKiB);
  next.replace = true;
  ASSERT_TRUE(h.seal(client, next).status.is_ok());
  EXPECT_NE(h.generation(id), before);
  EXPECT_EQ(h.store->parts().deferred.count(), 1U);
  EXPECT_EQ(h.store->pool().blob_bytes(), 192 * kKiB);
  EXPECT_EQ(h.store->parts().catalog.count(), 1U);
  // Repeating the replacement has no effect.
  const std::uint32_t after = h.generation(id);
  EXPECT_TRUE(h.seal(client, next).status.is_ok());
  EXPECT_EQ(h.generation(id), after);
  h.pins(client).unpin(position);
  h.store->rescan_pins();
  EXPECT_EQ(h.store->parts().deferred.count(), 0U);
  EXPECT_EQ(h.store->pool().blob_bytes(), 128 * kKiB);
  h.expect_no_leak();
}

TEST(LifeCycle, DeletedWhilePinnedIsGoneAtOnceAndItsMemoryIsNotReused) {
  Harness h(8 * kMiB);
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes id = numbered_id(1);
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, id, session, kMiB)).status.is_ok());
  const BlobLocation place = h.store->parts().blobs.place(0);
  const std::uint32_t position = h.pin(client, id);
  EXPECT_TRUE(h.remove(id));
  EXPECT_FALSE(h.has(id));
  EXPECT_EQ(h.memory.root().memory_wanted.load(), 0U);
  h.store->run_pending();
  EXPECT_EQ(h.memory.root().memory_wanted.load(), kReleasesWanted);
  // Lease all available memory: the pinned range is never part of it.
  std::vector<LeaseGrant> grants;
  while (true) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease({client, 1}, 64 * kKiB, 64 * kKiB, 0, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    ASSERT_TRUE(got.has_value());
    if (!got->is_ok()) break;
    grants.push_back(**got);
    ASSERT_LT(grants.size(), 1000U);
  }
  for (const LeaseGrant& grant : grants) {
    if (grant.segment != place.segment) continue;
    EXPECT_TRUE(grant.offset + grant.length <= place.offset || grant.offset >= place.offset + place.length);
  }
  h.pins(client).unpin(position);
  h.clock.advance_ms(250);
  h.store->tick();
  EXPECT_EQ(h.store->parts().deferred.count(), 0U);
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  h.lease(client, 512 * kKiB);
  EXPECT_EQ(h.memory.root().memory_wanted.load(), 0U);
  h.expect_no_leak();
}

TEST(LifeCycle, BlobsAreCountedAcrossTheObjectsThatShareThem) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  const IdBytes a = numbered_id(1);
  const IdBytes b = numbered_id(2);
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, a, session, 256 * kKiB)).status.is_ok());
  SealSpec shared;
  shared.id = b;
  shared.session = session;
  const std::uint32_t generation = h.store->parts().blobs.generation(0);
  // The same blob twice counts once.
  shared.buffers = {{0, generation, 0, 1000}, {0, generation, 1000, 5000}};
  ASSERT_TRUE(h.seal(client, shared).status.is_ok());
  EXPECT_EQ(h.store->parts().blobs.references(0), 2U);
  EXPECT_TRUE(h.remove(a));
  EXPECT_EQ(h.store->parts().blobs.references(0), 1U);
  EXPECT_EQ(h.store->pool().blob_bytes(), 256 * kKiB);
  EXPECT_TRUE(h.has(b));
  EXPECT_TRUE(h.remove(b));
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  // The blob number is free again, so its old generation is rejected.
  SealSpec late = shared;
  late.id = numbered_id(3);
  const SealOutcome refused = h.seal(client, late);
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument);
  h.expect_no_leak();
}

TEST(LifeCycle, EmptyObjectsAndZeroLengthBuffers) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  SealSpec empty;
  empty.id = numbered_id(1);
  empty.session = session;
  EXPECT_TRUE(h.seal(client, empty).status.is_ok());
  SealSpec zero = h.inline_spec(numbered_id(2), session, "");
  EXPECT_TRUE(h.seal(client, zero).status.is_ok());
  EXPECT_TRUE(h.has(numbered_id(1)));
  EXPECT_TRUE(h.has(numbered_id(2)));
  h.expect_no_leak();
}

TEST(LifeCycle, ManySmallObjectsFillTheStoreAndTheMessageSaysSo) {
  Harness h(8 * kMiB);
  const auto client = h.add_client();
  const auto session = h.open();
  const std::string payload(16 * kKiB, 'x');
  SealOutcome outcome;
  std::uint64_t count = 0;
  while (count < 8192) {
    outcome = h.seal(client, h.inline_spec(numbered_id(count), session, payload));
    if (!outcome.status.is_ok()) break;
    ++count;
  }
  EXPECT_EQ(outcome.status.code(), Code::kStoreFull) << count;
  EXPECT_GT(count * 16 * kKiB, 4 * kMiB);
  EXPECT_LE(count * 16 * kKiB, 8 * kMiB);
  EXPECT_TRUE(h.remove(numbered_id(0)));
  EXPECT_TRUE(h.seal(client, h.inline_spec(numbered_id(9000), session, payload)).status.is_ok());
  h.expect_no_leak();
}

TEST(RecoveredFromCrash, IsSaidWithoutColdStorageAndForAsLongAsTheStoreLives) {
  Harness h;
  const auto message = [&] {
    std::optional<std::vector<LookupOutcome>> got;
    h.store->lookup({0, 77}, {kA}, 0, 0, [&](auto outcomes) { got = std::move(outcomes); });
    return got ? got->at(0).message : "no answer";
  };
  EXPECT_EQ(message(), "");
  h.options.recovered_from_crash = true;
  h.begin_anew();
  for (int daemon = 0; daemon < 2; ++daemon) {
    EXPECT_NE(h.store->status_json({}).find("\"follows_killed_store\":true"), std::string::npos);
    EXPECT_NE(message().find("whose keeper and daemon were killed"), std::string::npos) << message();
    h.options.recovered_from_crash = false;  // as for a later daemon of the same store
    h.restart();
  }
  h.begin_anew();
  EXPECT_NE(h.store->status_json({}).find("\"follows_killed_store\":false"), std::string::npos);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
