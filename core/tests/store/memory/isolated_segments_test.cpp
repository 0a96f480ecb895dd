// Isolated segments: whoever their writer lets map them may write to all of them, so nobody else ever gets one.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

LeaseGrant lease_isolated(Harness& h, std::uint32_t client, std::uint64_t bytes) {
  std::optional<Result<LeaseGrant>> got;
  h.store->lease(
      {client, client + 100}, bytes, bytes, 0, [&](Result<LeaseGrant> grant) { got = std::move(grant); }, true);
  EXPECT_TRUE(got.has_value() && got->is_ok());
  return got && got->is_ok() ? **got : LeaseGrant{};
}

std::uint64_t count_of_state(Harness& h, const std::string& state) {
  const auto summary = h.store->pool().summary();
  const auto match = summary.find(state);
  return match == summary.end() ? 0 : match->second.count;
}

TEST(IsolatedSegments, TheSameClientsOtherLeasesAreElsewhere) {
  Harness h;
  const auto a = h.add_client("a");
  const LeaseGrant plain = h.lease(a, 64 * kKiB);
  const LeaseGrant isolated = lease_isolated(h, a, 64 * kKiB);
  EXPECT_NE(isolated.segment, plain.segment);
  EXPECT_EQ(lease_isolated(h, a, 64 * kKiB).segment, isolated.segment);
  EXPECT_EQ(h.lease(a, 64 * kKiB).segment, plain.segment);
  h.expect_no_leak();
}

TEST(IsolatedSegments, AnEmptyOneIsKeptForItsWriter) {
  Harness h;
  const auto a = h.add_client("a");
  const auto session = h.open();
  const LeaseGrant grant = lease_isolated(h, a, 1900 * kKiB);
  ASSERT_TRUE(h.seal(a, Harness::spec_in(grant, kA, session, 1900 * kKiB)).status.is_ok());
  EXPECT_TRUE(h.store->unlease(a, grant.segment, 0, 0, true).is_ok());
  EXPECT_EQ(count_of_state(h, "returned"), 1U);
  const std::uint64_t committed = h.store->pool().committed_bytes();
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(count_of_state(h, "free"), 1U);
  EXPECT_EQ(h.store->pool().committed_bytes(), committed);
  const auto b = h.add_client("b");
  EXPECT_NE(h.lease(a, 1900 * kKiB).segment, grant.segment) << "not isolated";
  EXPECT_NE(lease_isolated(h, b, 1900 * kKiB).segment, grant.segment) << "another client";
  const LeaseGrant again = lease_isolated(h, a, 1900 * kKiB);
  EXPECT_EQ(again.segment, grant.segment);
  EXPECT_EQ(again.generation, grant.generation);
  EXPECT_TRUE(again.first) << "the writer had unmapped it";
  h.expect_no_leak();
}

TEST(IsolatedSegments, OneThatIsKeptGoesWithItsWriter) {
  Harness h;
  const auto a = h.add_client("a");
  const LeaseGrant grant = lease_isolated(h, a, 1900 * kKiB);
  const std::uint64_t committed = h.store->pool().committed_bytes();
  EXPECT_TRUE(h.store->unlease(a, grant.segment, 0, 0, true).is_ok());
  EXPECT_EQ(count_of_state(h, "free"), 1U);
  h.kill(a);
  EXPECT_EQ(count_of_state(h, "free"), 0U);
  EXPECT_LT(h.store->pool().committed_bytes(), committed);
  h.expect_no_leak();
}

TEST(IsolatedSegments, OneThatIsKeptIsNoObstacleToOthers) {
  Harness h;
  const auto a = h.add_client("a");
  const std::uint64_t most = h.store->pool().largest_lease();
  const LeaseGrant grant = lease_isolated(h, a, most);
  EXPECT_TRUE(h.store->unlease(a, grant.segment, 0, 0, true).is_ok());
  EXPECT_EQ(h.store->pool().largest_lease(), most);
  const LeaseGrant plain = h.lease(a, most);
  EXPECT_EQ(plain.length, most);
  h.expect_no_leak();
}

TEST(IsolatedSegments, ADeadWritersAreRemovedOnceTheyAreEmpty) {
  Harness h;
  const auto a = h.add_client("a");
  const auto session = h.open();
  const LeaseGrant grant = lease_isolated(h, a, 64 * kKiB);
  ASSERT_TRUE(h.seal(a, Harness::spec_in(grant, kA, session, 64 * kKiB)).status.is_ok());
  h.kill(a);
  const auto b = h.add_client("b");
  EXPECT_NE(lease_isolated(h, b, 64 * kKiB).segment, grant.segment);
  EXPECT_TRUE(h.has(kA));
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(count_of_state(h, "free"), 0U);
  h.expect_no_leak();
}

TEST(IsolatedSegments, NothingIsReloadedIntoOne) {
  Harness h(64 * kMiB, 0, true);
  const auto a = h.add_client("a");
  const auto session = h.open();
  const LeaseGrant grant = lease_isolated(h, a, 4 * kMiB);
  for (const IdBytes& id : {kA, kB}) {
    SealSpec spec = Harness::spec_in(grant, id, session, 1 * kMiB);
    spec.blobs[0].offset += id == kB ? 1 * kMiB : 0;
    ASSERT_TRUE(h.seal(a, spec).status.is_ok());
  }
  EXPECT_TRUE(h.store->unlease(a, grant.segment, 0, 0, true).is_ok());
  ASSERT_TRUE(h.store->evict(std::span(&kA, 1))[0].is_ok());
  h.run_io();
  ASSERT_FALSE(h.is_resident(kA));
  const LookupOutcome got = h.get(kA);
  ASSERT_EQ(got.code, Code::kOk);
  ASSERT_TRUE(got.resident);
  const auto view = h.store->parts().catalog.record(got.slot);
  ASSERT_TRUE(view.is_ok());
  EXPECT_NE(h.store->parts().blobs.place(view->blobs()[0].blob).segment, grant.segment);
  h.expect_no_leak();
}

TEST(IsolatedSegments, TheNextDaemonStillKnows) {
  Harness h;
  const auto a = h.add_client("a");
  const auto session = h.open();
  const LeaseGrant grant = lease_isolated(h, a, 64 * kKiB);
  ASSERT_TRUE(h.seal(a, Harness::spec_in(grant, kA, session, 64 * kKiB)).status.is_ok());
  h.restart();
  h.kill(a);
  const auto b = h.add_client("b");
  EXPECT_NE(h.lease(b, 64 * kKiB).segment, grant.segment);
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(count_of_state(h, "free"), 0U);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
