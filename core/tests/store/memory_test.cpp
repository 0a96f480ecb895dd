// Segments and leases: assignment, return, and the error of a full store.
#include "shm/leases.h"
#include "store/harness.h"

namespace entrepot::testing {
namespace {

TEST(Leases, TwoClientsNeverWriteOneSegment) {
  Harness h;
  const auto a = h.add_client("a");
  const auto b = h.add_client("b");
  const LeaseGrant first = h.lease(a, 64 * kKiB);
  const LeaseGrant second = h.lease(b, 64 * kKiB);
  EXPECT_NE(first.segment, second.segment);
  EXPECT_TRUE(first.first);
  EXPECT_TRUE(second.first);
  const LeaseGrant third = h.lease(a, 64 * kKiB);
  EXPECT_EQ(third.segment, first.segment);
  EXPECT_FALSE(third.first);
  EXPECT_TRUE(third.offset >= first.offset + first.length || third.offset + third.length <= first.offset);
  h.expect_no_leak();
}

TEST(Leases, ASegmentGoesToAnotherOnlyWhenEmptyAndUnmapped) {
  Harness h(5 * kMiB);  // segments of 2 MiB
  const auto a = h.add_client("a");
  const auto b = h.add_client("b");
  const auto session = h.open();
  SealSpec spec = h.blob_spec(a, numbered_id(1), session, 1900 * kKiB);
  ASSERT_TRUE(h.seal(a, spec).status.is_ok());
  const std::uint32_t segment = spec.blobs[0].segment;
  EXPECT_TRUE(h.store->unlease(a, segment, 0, 0, true).is_ok());  // unmapped, but not empty
  EXPECT_EQ(h.store->pool().summary().at("returned").count, 1U);
  const LeaseGrant other = h.lease(b, 1900 * kKiB);
  EXPECT_NE(other.segment, segment);
  EXPECT_EQ(h.lease_error(b, 1900 * kKiB).code(), Code::kStoreFull);
  EXPECT_TRUE(h.remove(numbered_id(1)));
  EXPECT_EQ(h.store->pool().summary().at("free").count, 1U);
  const LeaseGrant recycled = h.lease(b, 1900 * kKiB);
  EXPECT_EQ(recycled.segment, segment);
  EXPECT_TRUE(recycled.first);
  h.expect_no_leak();
}

TEST(Leases, AFormerWriterGetsItsSegmentBackWithItsDescriptor) {
  Harness h(5 * kMiB);
  const auto a = h.add_client("a");
  const auto session = h.open();
  SealSpec spec = h.blob_spec(a, numbered_id(1), session, 128 * kKiB);
  ASSERT_TRUE(h.seal(a, spec).status.is_ok());
  const std::uint32_t segment = spec.blobs[0].segment;
  EXPECT_TRUE(h.store->unlease(a, segment, 0, 0, true).is_ok());
  const LeaseGrant again = h.lease(a, 128 * kKiB);
  EXPECT_EQ(again.segment, segment);
  EXPECT_TRUE(again.first);
  h.expect_no_leak();
}

// As in a batch in a full store: values not yet sealed between holes, each smaller than the usual granule.
TEST(Leases, AValueMayTakeAHoleWhenNothingLargerIsFree) {
  Harness h(3 * kMiB);
  const auto a = h.add_client("a");
  const auto session = h.open();
  std::uint64_t holes = 0;
  std::optional<Result<LeaseGrant>> got;
  const auto ask = [&](std::uint64_t bytes) {
    got.reset();
    h.store->lease({a, a + 100}, bytes, bytes, 0, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    return got && got->is_ok();
  };
  while (ask(64 * kKiB)) {
    SealSpec spec;
    spec.id = numbered_id(holes++);
    spec.session = session;
    spec.blobs = {{(*got)->segment, (*got)->offset, 48 * kKiB}};
    spec.buffers = {{kNewBlobBit, 0, 0, 48 * kKiB}};
    spec.tree = "tree";
    ASSERT_TRUE(h.seal(a, spec).status.is_ok());
  }
  ASSERT_GE(holes, 16U);
  for (std::uint64_t number = 0; number < holes; ++number)
    ASSERT_TRUE(h.remove(numbered_id(number)));
  for (std::uint64_t number = 0; number < holes; ++number) {
    ASSERT_TRUE(ask(40 * kKiB)) << number << ": " << got->status().to_string();
    EXPECT_EQ((*got)->length, 40 * kKiB);
    EXPECT_EQ((*got)->offset % 4096, 0U);
  }
  EXPECT_FALSE(ask(40 * kKiB));
  EXPECT_TRUE(ask(8 * kKiB));
}

TEST(Leases, ADeadClientsMemoryReturns) {
  Harness h(5 * kMiB);
  const auto a = h.add_client("a");
  const auto b = h.add_client("b");
  h.lease(a, 1900 * kKiB);
  h.lease(a, 1900 * kKiB);
  EXPECT_EQ(h.lease_error(b, 64 * kKiB).code(), Code::kStoreFull);
  h.store->disconnected(a, a + 100);
  EXPECT_EQ(h.store->pool().leased_bytes(), 0U);
  h.kill(a);
  EXPECT_EQ(h.store->pool().summary().at("free").count, 2U);
  h.lease(b, 1900 * kKiB);
  h.lease(b, 1900 * kKiB);
  h.expect_no_leak();
}

TEST(Leases, ManyClientsFitASmallStore) {
  Harness h(64 * kMiB);  // segments of 4 MiB
  std::vector<std::uint32_t> clients;
  for (int i = 0; i < 16; ++i)
    clients.push_back(h.add_client());
  const auto session = h.open();
  std::uint64_t number = 0;
  for (const auto client : clients) {
    ASSERT_TRUE(h.seal(client, h.blob_spec(client, numbered_id(++number), session, 600 * kKiB)).status.is_ok());
  }
  h.expect_no_leak();
}

TEST(Leases, FreeTailsOfOthersAreGivenBackUnderPressure) {
  Harness h(9 * kMiB);
  const auto a = h.add_client("a");
  const auto b = h.add_client("b");
  const auto session = h.open();
  // Client a: a small blob in each of four segments.
  std::vector<LeaseGrant> grants;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const LeaseGrant grant = h.lease(a, 1900 * kKiB);
    SealSpec spec = h.inline_spec(numbered_id(i), session, "");
    spec.blobs = {{grant.segment, grant.offset, 64 * kKiB}};
    spec.buffers = {{kNewBlobBit, 0, 0, 64 * kKiB}};
    ASSERT_TRUE(h.seal(a, spec).status.is_ok());
    grants.push_back(grant);
  }
  for (const LeaseGrant& grant : grants) {
    ASSERT_TRUE(h.store->unlease(a, grant.segment, grant.offset + 64 * kKiB, grant.length - 64 * kKiB, true).is_ok());
  }
  EXPECT_EQ(h.store->pool().summary().at("returned").count, 4U);
  const LeaseGrant large = h.lease(b, 4 * kMiB);
  EXPECT_GE(large.length, 4 * kMiB);
  EXPECT_GT(h.source.punched, 3 * kMiB);
  EXPECT_LE(h.store->pool().committed_bytes(), 9 * kMiB);
  // Punched ranges are not leased again: the emptied segment is released as a whole.
  for (std::uint64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(h.remove(numbered_id(i)));
  EXPECT_EQ(h.store->pool().summary().count("returned"), 0U);
  h.expect_no_leak();
}

TEST(StoreFull, AnObjectLargerThanTheStoreIsRefusedForGood) {
  Harness h(5 * kMiB);
  const auto a = h.add_client();
  const Status full = h.lease_error(a, 6 * kMiB);
  EXPECT_EQ(full.code(), Code::kStoreFull);
  EXPECT_FALSE(full.retryable());
  EXPECT_NE(full.message().find("larger than the whole store of 5 MiB"), std::string::npos) << full.message();
  EXPECT_EQ(h.lease_error(a, UINT64_MAX).code(), Code::kStoreFull);
  h.expect_no_leak();
}

TEST(StoreFull, TheMessageNamesWhoHoldsWhat) {
  Harness h(5 * kMiB);
  const auto a = h.add_client("holder");
  const auto b = h.add_client("reader");
  const auto session = h.open();
  ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(1), session, 1900 * kKiB)).status.is_ok());
  h.pin(b, numbered_id(1));
  EXPECT_TRUE(h.remove(numbered_id(1)));
  h.lease(a, 1900 * kKiB);
  h.clock.advance_ms(5'000);
  const Status full = h.lease_error(b, 1900 * kKiB);
  EXPECT_EQ(full.code(), Code::kStoreFull);
  EXPECT_TRUE(full.retryable());
  for (const char* part : {"no room for", "capacity 5 MiB", "pinned 1.9 MiB", "deleted but still pinned",
                           "spillable 0 B", "(reader, process 4711) pins 1 objects", "connected for 5 s",
                           "(holder, process 4711) holds leases", "Tried:", "larger --size"}) {
    EXPECT_NE(full.message().find(part), std::string::npos) << part << " in: " << full.message();
  }
  for (const char* part : {"moving", "waiting"})  // there is no disk, and the request has no timeout
    EXPECT_EQ(full.message().find(part), std::string::npos) << part << " in: " << full.message();
  h.expect_no_leak();
}

TEST(StoreFull, NoMemoryForSegmentsSaysWhy) {
  Harness h;
  const auto a = h.add_client();
  h.source.failure = Status(Code::kStoreFull, "the machine has 3 MiB left");
  const Status full = h.lease_error(a, 64 * kKiB);
  EXPECT_EQ(full.code(), Code::kStoreFull);
  EXPECT_NE(full.message().find("the machine has 3 MiB left"), std::string::npos) << full.message();
  EXPECT_EQ(h.store->pool().committed_bytes(), 0U);
  EXPECT_TRUE(h.store->pool().is_short());
  h.source.failure = {};
  h.clock.advance_ms(5'000);
  h.store->tick();
  EXPECT_FALSE(h.store->pool().is_short());
  h.lease(a, 64 * kKiB);
  h.expect_no_leak();
}

TEST(StoreFull, AMachineShortOfMemoryGivesSmallerSegments) {
  Harness h(256 * kMiB);
  h.source.machine_bytes = 5 * kMiB;
  const auto a = h.add_client();
  const LeaseGrant got = h.lease(a, kMiB, 200 * kMiB);
  EXPECT_GE(got.length, kMiB);
  EXPECT_LE(got.segment_bytes, 5 * kMiB);
  EXPECT_EQ(h.lease_error(a, 20 * kMiB).code(), Code::kStoreFull);
  h.expect_no_leak();
}

TEST(Leases, ClientsSeeWhetherMemoryIsBeingProvisionedForLeases) {
  Harness h(64 * kMiB);
  h.source.at_once = false;
  const auto a = h.add_client();
  const auto hint = [&] { return h.memory.root().memory_wanted.load(); };
  h.store->run_pending();  // makes warm memory, which nobody waits for
  EXPECT_EQ(hint(), 0U);
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({a, 9}, 20 * kMiB, 20 * kMiB, 100, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_EQ(hint(), kProvisioningForLeases);
  h.clock.advance_ms(101);
  h.store->tick();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->code(), Code::kStoreFull);
  h.store->run_pending();
  EXPECT_EQ(hint(), kProvisioningForLeases) << "it is still being made, for whoever asks again";
  h.source.finish_all();
  h.store->run_pending();
  EXPECT_EQ(hint(), 0U);
  h.expect_no_leak();
}

TEST(Leases, MemoryThatCannotBeProvisionedIsNotAnnounced) {
  Harness h(64 * kMiB);
  const auto a = h.add_client();
  h.source.failure = Status(Code::kStoreFull, "the machine has 3 MiB left");
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({a, 9}, 20 * kMiB, 20 * kMiB, 100, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_EQ(h.memory.root().memory_wanted.load() & kProvisioningForLeases, 0U);
  h.clock.advance_ms(101);
  h.store->tick();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(h.memory.root().memory_wanted.load() & kProvisioningForLeases, 0U);
  h.source.failure = {};
  h.expect_no_leak();
}

TEST(Leases, WhoAsksAgainGetsTheSegmentThatWasStartedForTheRequestBefore) {
  Harness h(64 * kMiB);
  h.source.at_once = false;
  const auto a = h.add_client();
  std::optional<Result<LeaseGrant>> first;
  h.store->lease({a, 9}, 20 * kMiB, 20 * kMiB, 100, [&](Result<LeaseGrant> grant) { first = std::move(grant); });
  h.clock.advance_ms(101);
  h.store->tick();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->code(), Code::kStoreFull) << "it is not made yet";
  std::optional<Result<LeaseGrant>> second;
  h.store->lease({a, 9}, 20 * kMiB, 20 * kMiB, 10'000, [&](Result<LeaseGrant> grant) { second = std::move(grant); });
  EXPECT_EQ(h.store->pool().committed_bytes(), 20 * kMiB);
  h.source.finish_all();
  h.store->run_pending();
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->is_ok()) << second->status().to_string();
  EXPECT_EQ(h.store->pool().committed_bytes(), 20 * kMiB);
  h.expect_no_leak();
}

TEST(StoreFull, ALeaseWaitsForTheMachinesMemory) {
  Harness h(64 * kMiB);
  const auto a = h.add_client();
  h.source.failure = Status(Code::kStoreFull, "the machine has 3 MiB left");
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({a, 9}, kMiB, 0, 10'000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  h.store->tick();
  EXPECT_FALSE(got.has_value());
  EXPECT_LE(h.store->next_deadline_ns(), h.clock.monotonic_ns() + 1'000'000'000);
  h.source.failure = {};
  h.clock.advance_ms(1'000);
  h.store->tick();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(got->is_ok());
  h.expect_no_leak();
}

TEST(StoreFull, ALeaseThatWaitsGetsWhatAnotherDeletes) {
  Harness h(5 * kMiB);
  const auto a = h.add_client();
  const auto b = h.add_client();
  const auto session = h.open();
  ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(1), session, 1900 * kKiB)).status.is_ok());
  ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(2), session, 1900 * kKiB)).status.is_ok());
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({b, 9}, 1900 * kKiB, 0, 10'000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_FALSE(got.has_value());
  EXPECT_EQ(h.memory.root().memory_wanted.load(), kReleasesWanted | kLeasesWanted);
  EXPECT_TRUE(h.remove(numbered_id(1)));
  h.store->run_pending();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(got->is_ok()) << got->status().to_string();
  EXPECT_EQ(h.memory.root().memory_wanted.load(), 0U);
  h.expect_no_leak();
}

TEST(StoreFull, ALeaseThatWaitsInVainEndsAtItsDeadline) {
  Harness h(5 * kMiB);
  const auto a = h.add_client();
  const auto b = h.add_client();
  h.lease(a, 1900 * kKiB);
  h.lease(a, 1900 * kKiB);
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({b, 9}, 64 * kKiB, 0, 500, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  h.clock.advance_ms(499);
  h.store->tick();
  EXPECT_FALSE(got.has_value());
  EXPECT_LE(h.store->next_deadline_ns(), h.clock.monotonic_ns() + 1'000'000);
  h.clock.advance_ms(1);
  h.store->tick();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->code(), Code::kStoreFull);
  h.expect_no_leak();
}

TEST(StoreFull, HolesAreWorthALeaseInOnePiece) {
  Harness h(32 * kMiB);
  const auto a = h.add_client();
  const auto session = h.open();
  for (std::uint32_t number = 1; number <= 28; ++number)
    ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(number), session, kMiB)).status.is_ok());
  for (std::uint32_t number = 1; number <= 28; number += 2)
    EXPECT_TRUE(h.remove(numbered_id(number)));
  h.store->run_pending();
  EXPECT_LT(h.store->pool().largest_extent(), 8 * kMiB);
  const std::uint64_t most = h.store->pool().largest_lease();
  EXPECT_GE(most, 14 * kMiB);
  const auto b = h.add_client();
  EXPECT_EQ(h.lease_error(b, most + 4 * kMiB).code(), Code::kStoreFull);
  EXPECT_GE(h.lease(b, most).length, most);
  h.expect_no_leak();
}

TEST(Warming, TopsUpToItsTargetAndLeasesWaitForMemoryUnderWay) {
  Harness h(64 * kMiB, 16 * kMiB);
  h.source.at_once = false;
  const auto a = h.add_client();
  bool warm = false;
  h.store->wait_provisioned({a, 1}, 60'000, [&](const Status& status) { warm = status.is_ok(); });
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({a, 1}, kMiB, kMiB, 60'000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_FALSE(got.has_value());
  for (int round = 0; round < 32 && !warm; ++round) {
    h.source.finish_all();
    h.store->run_pending();
  }
  EXPECT_TRUE(warm);
  ASSERT_TRUE(got && got->is_ok());
  EXPECT_GE(h.store->pool().warm_bytes(), 16 * kMiB);
  EXPECT_LE(h.store->pool().committed_bytes(), 32 * kMiB);
  h.source.at_once = true;
  h.expect_no_leak();
}

TEST(Warming, KeepsOneSegmentForALargeValueAndMakesItAgain) {
  Harness h(96 * kMiB, 48 * kMiB);
  const auto a = h.add_client();
  const auto b = h.add_client();
  const auto made = [&] {  // number of segments after warming is done and copies have finished
    h.clock.advance_ms(1'000);
    for (int round = 0; round < 32; ++round)
      h.store->run_pending();
    return h.source.files.size();
  };
  const std::size_t before = made();
  EXPECT_LT(h.store->pool().committed_bytes(), 48 * kMiB + h.store->pool().small_segment_bytes());
  const LeaseGrant first = h.lease(a, 32 * kMiB, 32 * kMiB);
  EXPECT_EQ(h.source.files.size(), before) << "a lease of two thirds of what is kept warm had to wait";
  EXPECT_EQ(made(), before + 1);
  const LeaseGrant second = h.lease(b, 32 * kMiB, 32 * kMiB);
  EXPECT_EQ(h.source.files.size(), before + 1) << "the large segment was not recreated";
  EXPECT_NE(first.segment, second.segment);
  EXPECT_EQ(made(), before + 1) << "there is no capacity for a third";
  h.expect_no_leak();
}

TEST(Warming, AGoneAskersMemoryIsForAnybody) {
  Harness h(5 * kMiB);
  h.source.at_once = false;
  const auto a = h.add_client();
  const auto b = h.add_client();
  h.store->lease({a, 7}, kMiB, kMiB, 60'000, [&](const Result<LeaseGrant>&) { FAIL() << "its connection is gone"; });
  h.store->disconnected(a, 7);
  h.source.finish_all();
  h.store->run_pending();
  const LeaseGrant grant = h.lease(b, kMiB);
  EXPECT_GE(grant.length, kMiB);
  h.source.at_once = true;
  h.expect_no_leak();
}

TEST(Reconnect, LeasesAreWhatTheClientSaysItHolds) {
  Harness h(8 * kMiB);
  const auto a = h.add_client();
  const auto session = h.open();
  const LeaseGrant grant = h.lease(a, 512 * kKiB);
  h.restart();
  const std::uint64_t token = h.store->clients().find(a)->token;
  EXPECT_TRUE(h.store->clients().find(a)->quarantined);
  EXPECT_EQ(h.store->reconnect(a, token + 1, nullptr).code(), Code::kAccessDenied);
  const std::vector<ReportedLease> held = {{grant.segment, grant.generation, grant.offset, grant.length},
                                           {grant.segment, grant.generation + 1, grant.offset, grant.length},
                                           {999, 1, 0, 64 * kKiB},
                                           {grant.segment, grant.generation, UINT64_MAX - 10, 64 * kKiB}};
  EXPECT_TRUE(h.store->reconnect(a, token, &held).is_ok());
  EXPECT_EQ(h.store->pool().leased_bytes(), grant.length);
  SealSpec spec = h.inline_spec(numbered_id(1), h.open(), "");
  (void)session;
  spec.blobs = {{grant.segment, grant.offset, 1000}};
  EXPECT_TRUE(h.seal(a, spec).status.is_ok());
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
