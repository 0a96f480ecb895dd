// Eviction and reload: under memory pressure, on request, with failures, and across deaths.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

class Paging : public ::testing::Test {
 protected:
  void put(std::uint64_t number, std::uint64_t bytes) {
    const SealSpec spec = h.blob_spec(client, numbered_id(number), session, bytes);
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  }
  // Requests a lease that may have to wait for memory.
  Result<LeaseGrant> patient_lease(std::uint64_t bytes) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease({client, 9}, bytes, bytes, 1000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    if (!got) h.run_io();
    if (!got) {
      h.clock.advance_ms(1001);
      h.store->tick();
    }
    EXPECT_TRUE(got.has_value());
    return got ? *got : Status(Code::kInternal, "no answer");
  }
  void put_patiently(std::uint64_t number, std::uint64_t bytes) {
    Result<LeaseGrant> got = patient_lease(bytes);
    ASSERT_TRUE(got.is_ok()) << got.status().to_string();
    SealSpec spec;
    spec.id = numbered_id(number);
    spec.session = session;
    spec.blobs = {{got->segment, got->offset, bytes}};
    spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
    spec.tree = "tree";
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  }

  Harness h{32 * kMiB, 0, true};
  std::uint32_t client = h.add_client();
  std::uint32_t session = h.open("run");
};

TEST_F(Paging, FourTimesTheMemoryIsPutAndReadBack) {
  for (std::uint64_t i = 0; i < 64; ++i)
    put_patiently(i, 2 * kMiB);
  EXPECT_EQ(h.store->parts().catalog.count(), 64U);
  EXPECT_GT(h.store->parts().blobs.spilled_bytes(), 90 * kMiB);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      const LookupOutcome got = h.get(numbered_id(i));
      ASSERT_EQ(got.code, Code::kOk) << i << ": " << got.message;
      ASSERT_TRUE(got.resident) << i;
      h.clock.advance_ms(300);
    }
  }
  ASSERT_LE(h.store->pool().committed_bytes(), 32 * kMiB);
  h.expect_no_leak();
}

TEST_F(Paging, AWishMovesOutAndBackAndKeepsTheGeneration) {
  put(1, kMiB);
  const std::uint32_t generation = h.generation(kA);
  const std::vector<IdBytes> ids = {kA, kB};
  const auto wished = h.store->evict(ids);
  EXPECT_TRUE(wished[0].is_ok());
  EXPECT_EQ(wished[1].code(), Code::kObjectNotFound);
  EXPECT_TRUE(h.is_resident(kA)) << "it stays readable while it is written";
  h.run_io();
  EXPECT_FALSE(h.is_resident(kA));
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  EXPECT_EQ(h.store->parts().blobs.spilled_bytes(), kMiB);
  const LookupOutcome back = h.get(kA);
  EXPECT_TRUE(back.resident);
  EXPECT_EQ(back.generation, generation);
  EXPECT_EQ(h.spill.used(), kMiB) << "the copy stays, so that leaving again costs nothing";
  EXPECT_TRUE(h.store->evict(ids)[0].is_ok());
  EXPECT_FALSE(h.is_resident(kA));
  h.expect_no_leak();
}

TEST_F(Paging, WhatIsPinnedStays) {
  put(1, kMiB);
  const auto position = h.pin(client, kA);
  const std::vector<IdBytes> ids = {kA};
  EXPECT_TRUE(h.store->evict(ids)[0].is_ok());
  h.run_io();
  EXPECT_TRUE(h.is_resident(kA));
  for (std::uint64_t i = 10; i < 40; ++i)
    put_patiently(i, 2 * kMiB);
  EXPECT_TRUE(h.is_resident(kA));
  h.pins(client).unpin(position);
  EXPECT_TRUE(h.store->evict(ids)[0].is_ok());
  EXPECT_FALSE(h.is_resident(kA));
  h.expect_no_leak();
}

TEST_F(Paging, ABlobThatSeveralShareGoesWithAllOfThemOrNotAtAll) {
  put(1, kMiB);
  SealSpec shared;
  shared.id = kB;
  shared.session = session;
  shared.buffers = {{0, h.store->parts().blobs.generation(0), 0, 100}};
  ASSERT_TRUE(h.seal(client, shared).status.is_ok());
  const auto position = h.pin(client, kB);
  const std::vector<IdBytes> ids = {kA};
  EXPECT_TRUE(h.store->evict(ids)[0].is_ok());
  h.run_io();
  EXPECT_TRUE(h.is_resident(kA) && h.is_resident(kB));
  h.pins(client).unpin(position);
  EXPECT_TRUE(h.store->evict(ids)[0].is_ok());
  EXPECT_FALSE(h.is_resident(kA) || h.is_resident(kB));
  EXPECT_TRUE(h.get(kB).resident);
  EXPECT_TRUE(h.is_resident(kA)) << "all of its blobs are back";
  EXPECT_TRUE(h.remove(kA));
  EXPECT_TRUE(h.is_resident(kB));
  h.expect_no_leak();
}

TEST_F(Paging, AFailedWriteLosesNothingAndIsTriedAgain) {
  h.spill.write_failure = Status(Code::kStoreFull, "the disk is full", true);
  for (std::uint64_t i = 0; i < 14; ++i)
    put(i, 2 * kMiB);
  EXPECT_EQ(patient_lease(8 * kMiB).code(), Code::kStoreFull);
  EXPECT_EQ(h.spill.used(), 0U);
  for (std::uint64_t i = 0; i < 14; ++i)
    EXPECT_TRUE(h.is_resident(numbered_id(i)));
  h.run_io();
  h.spill.write_failure = Status();
  h.clock.advance_ms(2000);
  const Result<LeaseGrant> got = patient_lease(8 * kMiB);
  EXPECT_TRUE(got.is_ok()) << got.status().to_string();
  h.expect_no_leak();
}

TEST_F(Paging, AnEvictionOnRequestIsTriedAgainUntilTheDiskHasRoom) {
  put(1, kMiB);
  h.spill.write_failure = Status(Code::kStoreFull, "the disk is full", true);
  EXPECT_TRUE(h.store->evict(std::vector<IdBytes>{kA})[0].is_ok());
  h.run_io();
  EXPECT_TRUE(h.is_resident(kA));
  EXPECT_LE(h.store->next_deadline_ns(), h.clock.monotonic_ns() + 1'000'000'000) << "the daemon wakes up for it";
  h.spill.write_failure = Status();
  h.clock.advance_ms(1000);
  h.store->tick();
  h.run_io();
  EXPECT_FALSE(h.is_resident(kA));
  h.expect_no_leak();
}

TEST_F(Paging, AQuotaIsSaidAndHeldAndWhatIsOutCanStillComeBack) {
  h.spill.quota = 8 * kMiB;
  std::uint64_t count = 0;
  while (true) {
    const Result<LeaseGrant> got = patient_lease(2 * kMiB);
    if (!got.is_ok()) {
      EXPECT_EQ(got.status().code(), Code::kStoreFull);
      EXPECT_NE(got.status().message().find("a larger --size or --spill-quota"), std::string::npos)
          << got.status().message();
      break;
    }
    SealSpec spec;
    spec.id = numbered_id(count);
    spec.session = session;
    spec.blobs = {{got->segment, got->offset, 2 * kMiB}};
    spec.buffers = {{kNewBlobBit, 0, 0, 2 * kMiB}};
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
    ++count;
  }
  EXPECT_GE(count, 16U);
  EXPECT_LE(h.spill.used(), 8 * kMiB);
  EXPECT_GT(h.store->parts().blobs.spilled_bytes(), 0U);
  for (std::uint64_t i = 0; i < count; ++i) {
    h.clock.advance_ms(1300);
    const LookupOutcome got = h.get(numbered_id(i));
    EXPECT_TRUE(got.code == Code::kOk && got.resident) << i << ": " << got.message;
  }
  h.expect_no_leak();
}

TEST_F(Paging, WhatCannotBeWrittenAnyMoreDoesNotKeepOthersFromComingBack) {
  h.spill.quota = 24 * kMiB;
  for (std::uint64_t i = 0; i < 24; ++i)  // more than the quota, less than memory and quota together
    put_patiently(i, 2 * kMiB);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 24; i-- > 0;) {
      h.clock.advance_ms(300);
      const LookupOutcome got = h.get(numbered_id(i));
      ASSERT_EQ(got.code, Code::kOk) << i << ": " << got.message;
      ASSERT_TRUE(got.resident) << i;
    }
  }
  h.expect_no_leak();
}

TEST_F(Paging, ADamagedCopyIsALostObjectAndNoOther) {
  put(1, kMiB);
  put(2, kMiB);
  const std::vector<IdBytes> ids = {kA, kB};
  (void)h.store->evict(ids);
  h.run_io();
  h.spill.read_failure = Status(Code::kCorruptData, "a checksum does not fit");
  EXPECT_EQ(h.get(kA).code, Code::kObjectLost);
  h.spill.read_failure = Status();
  EXPECT_EQ(h.get(kA).code, Code::kObjectLost);
  EXPECT_TRUE(h.get(kB).resident);
  put(1, kMiB);  // it can be recomputed
  EXPECT_TRUE(h.get(kA).resident);
  h.expect_no_leak();
}

TEST_F(Paging, AReadErrorIsToldAndTheObjectStaysWhereItIs) {
  put(1, kMiB);
  const std::vector<IdBytes> ids = {kA};
  (void)h.store->evict(ids);
  h.run_io();
  h.spill.read_failure = Status(Code::kInternal, "the disk does not answer");
  const LookupOutcome got = h.get(kA);
  EXPECT_EQ(got.code, Code::kInternal);
  EXPECT_NE(got.message.find("the disk does not answer"), std::string::npos);
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  h.spill.read_failure = Status();
  EXPECT_TRUE(h.get(kA).resident);
  h.expect_no_leak();
}

TEST_F(Paging, ALoadWithoutRoomWaitsAndSaysWhoHoldsTheMemory) {
  put(1, 4 * kMiB);
  const std::vector<IdBytes> ids = {kA};
  (void)h.store->evict(ids);
  h.run_io();
  for (std::uint64_t i = 10; i < 25; ++i) {
    put(i, 2 * kMiB);
    h.pin(client, numbered_id(i));
  }
  const LookupOutcome got = h.get(kA);
  EXPECT_EQ(got.code, Code::kStoreFull);
  EXPECT_EQ(got.message.find("--spill-quota"), std::string::npos) << "the quota has room: " << got.message;
  EXPECT_NE(got.message.find("pins 15 objects"), std::string::npos) << got.message;
  h.kill(client);
  h.clock.advance_ms(100);
  EXPECT_TRUE(h.get(kA).resident);
  h.expect_no_leak();
}

// Simulates a control group in which others use most of the memory.
TEST_F(Paging, WhatTheMachineHasNoMemoryForGoesToDisk) {
  h.source.machine_bytes = 12 * kMiB;  // of the 32 that the store may use
  for (std::uint64_t i = 1; i <= 40; ++i)
    put_patiently(i, kMiB);
  EXPECT_LE(h.source.in_use(), 12 * kMiB);
  EXPECT_GE(h.spill.used(), 28 * kMiB);
  for (std::uint64_t i = 1; i <= 40; ++i) {
    EXPECT_TRUE(h.get(numbered_id(i)).resident) << i;
    h.clock.advance_ms(300);  // recently loaded objects stay until their reader had time to pin them
  }
  EXPECT_LE(h.source.in_use(), 12 * kMiB);
  h.expect_no_leak();
}

TEST_F(Paging, ALoadWhoseSegmentCannotBeMadeSaysWhy) {
  put(1, 4 * kMiB);
  put(2, 4 * kMiB);
  const std::vector<IdBytes> ids = {kA, kB};
  (void)h.store->evict(ids);
  h.run_io();
  h.kill(client);  // its two segments become available
  client = h.add_client();
  for (std::uint64_t i = 10; i < 14; ++i) {  // and are taken, so that a load needs a new segment
    put(i, 2 * kMiB);
    h.pin(client, numbered_id(i));
  }
  h.source.at_once = false;
  std::vector<LookupOutcome> got;
  for (const IdBytes& id : ids)
    h.store->lookup({0, 77}, {id}, 0, 1000, [&](auto outcomes) { got.push_back(std::move(outcomes[0])); });
  ASSERT_FALSE(h.source.waiting.empty()) << "a segment is made for what comes back";
  h.source.failure = Status(Code::kStoreFull, "the machine has 3 MiB left");
  h.source.finish_all();
  h.run_io();
  h.source.finish_all();  // a smaller one, and the second object's
  h.run_io();
  h.clock.advance_ms(1001);
  h.store->tick();
  ASSERT_EQ(got.size(), 2U);
  for (const LookupOutcome& outcome : got) {
    EXPECT_EQ(outcome.code, Code::kStoreFull);
    EXPECT_NE(outcome.message.find("the machine has 3 MiB left"), std::string::npos) << outcome.message;
  }
  h.source.failure = Status();
  h.source.at_once = true;
  h.source.finish_all();
  h.clock.advance_ms(5'000);
  h.store->tick();
  EXPECT_TRUE(h.get(kA).resident);
  h.expect_no_leak();
}

TEST_F(Paging, DeletedWhileItIsWrittenOrRead) {
  put(1, kMiB);
  h.spill.at_once = false;
  const std::vector<IdBytes> ids = {kA};
  (void)h.store->evict(ids);
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(h.store->pool().blob_bytes(), kMiB) << "the disk still reads it";
  h.run_io();
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  EXPECT_EQ(h.spill.used(), 0U);
  put(2, kMiB);
  const std::vector<IdBytes> other = {kB};
  (void)h.store->evict(other);
  h.run_io();
  std::optional<std::vector<LookupOutcome>> got;
  h.store->lookup({client, 5}, {kB}, 0, 1000, [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_FALSE(got.has_value());
  EXPECT_TRUE(h.remove(kB));
  ASSERT_TRUE(got.has_value()) << "nothing will come: whoever waits is told at once, not at the end of its patience";
  EXPECT_EQ((*got)[0].code, Code::kObjectNotFound);
  h.run_io();
  h.expect_no_leak();
}

TEST_F(Paging, ManyAtOnceAreBroughtBackWithoutWaiting) {
  for (std::uint64_t i = 0; i < 4; ++i)
    put(i, kMiB);
  std::vector<IdBytes> ids;
  for (std::uint64_t i = 0; i < 4; ++i)
    ids.push_back(numbered_id(i));
  (void)h.store->evict(ids);
  h.run_io();
  h.spill.at_once = false;
  std::optional<std::vector<LookupOutcome>> got;
  h.store->lookup({client, 5}, ids, 0, 1000, [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_TRUE(got.has_value());
  for (const LookupOutcome& outcome : *got)
    EXPECT_TRUE(outcome.code == Code::kOk && !outcome.resident);
  EXPECT_EQ(h.spill.waiting.size(), 4U);
  h.run_io();
  for (const IdBytes& id : ids)
    EXPECT_TRUE(h.is_resident(id));
  // An existence check does not trigger a reload.
  (void)h.store->evict(ids);
  h.clock.advance_ms(300);
  got.reset();
  h.store->lookup({client, 5}, ids, 0, 0, [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(h.spill.waiting.empty());
  h.expect_no_leak();
}

TEST_F(Paging, WithoutColdStorageAWishIsRefused) {
  Harness plain;
  const auto writer = plain.add_client();
  ASSERT_TRUE(plain.seal(writer, plain.blob_spec(writer, kA, plain.open(), kMiB)).status.is_ok());
  const std::vector<IdBytes> ids = {kA};
  EXPECT_EQ(plain.store->evict(ids)[0].code(), Code::kInvalidArgument);
  plain.expect_no_leak();
}

TEST_F(Paging, ADaemonThatFollowsKnowsTheCopies) {
  put(1, kMiB);
  put(2, kMiB);
  const std::vector<IdBytes> ids = {kA};
  (void)h.store->evict(ids);
  h.run_io();
  const std::uint32_t generation = h.generation(kA);
  const AdoptionReport report = h.restart();
  EXPECT_EQ(report.objects.adopted, 2U);
  EXPECT_EQ(report.objects.lost, 0U);
  EXPECT_FALSE(h.is_resident(kA));
  EXPECT_TRUE(h.is_resident(kB));
  EXPECT_EQ(h.get(kA).generation, generation);
  EXPECT_TRUE(h.is_resident(kA));
  h.expect_no_leak();
}

TEST_F(Paging, NamesThatChangeAfterwardsAreRememberedToo) {
  for (const std::uint64_t number : {1, 2})
    put(number, kMiB);
  const std::vector<IdBytes> ids = {kA, kB};
  (void)h.store->evict(ids);
  h.run_io();
  ASSERT_TRUE(h.store->bind_name(session, "first", kA, false).is_ok());
  ASSERT_TRUE(h.store->bind_name(session, "last", kA, false).is_ok());
  ASSERT_TRUE(h.store->bind_name(session, "first", kB, true).is_ok());
  ASSERT_TRUE(h.store->unbind_name(session, "last").is_ok());
  h.begin_anew();
  const std::uint32_t* run = h.store->sessions().find("scope", "run");
  ASSERT_NE(run, nullptr);
  ASSERT_NE(h.store->names().resolve(*run, "first"), nullptr);
  EXPECT_EQ(*h.store->names().resolve(*run, "first"), kB);
  EXPECT_EQ(h.store->names().resolve(*run, "last"), nullptr);
  h.expect_no_leak();
}

TEST_F(Paging, AfterKeeperAndDaemonDiedWhatHadACopyLives) {
  SealSpec spec = h.blob_spec(client, kA, session, kMiB);
  spec.name = "orders";
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  SealSpec shared;
  shared.id = numbered_id(3);
  shared.session = session;
  shared.buffers = {{0, h.store->parts().blobs.generation(0), 64, 100}};
  ASSERT_TRUE(h.seal(client, shared).status.is_ok());
  put(2, kMiB);
  const std::vector<IdBytes> ids = {kA};
  (void)h.store->evict(ids);
  h.run_io();
  const std::uint32_t generation = h.generation(kA);
  for (int death = 0; death < 2; ++death) {
    h.begin_anew();
    EXPECT_EQ(h.store->parts().catalog.count(), 2U);
    const LookupOutcome got = h.get(kA);
    EXPECT_EQ(got.code, Code::kOk) << got.message;
    EXPECT_EQ(got.generation, generation);
    EXPECT_EQ(h.store->objects().lookup(kB).code, Code::kObjectNotFound);
    EXPECT_TRUE(h.is_resident(numbered_id(3))) << "they share the copy";
    EXPECT_EQ(h.spill.used(), kMiB);
    const std::uint32_t* run = h.store->sessions().find("scope", "run");
    ASSERT_NE(run, nullptr);
    EXPECT_NE(h.store->names().resolve(*run, "orders"), nullptr);
  }
  client = h.add_client();
  session = h.open("run");
  put(2, kMiB);
  EXPECT_EQ(h.generation(kB), generation + 2) << "generations go on where the former store was";
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
