// A lying client: no request of it may affect another client's memory, or the store's.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

struct Hostile : ::testing::Test {
  Harness h;
  std::uint32_t client = h.add_client("liar");
  std::uint32_t victim = h.add_client("victim");
  std::uint32_t session = h.open();
  LeaseGrant grant = h.lease(client, 512 * kKiB, 512 * kKiB);
  std::uint64_t number = 0;

  void expect_refused(std::vector<BlobRange> blobs, std::vector<BufferSpec> buffers) {
    SealSpec spec;
    spec.id = numbered_id(++number);
    spec.session = session;
    spec.blobs = std::move(blobs);
    spec.buffers = std::move(buffers);
    const std::uint32_t live = h.store->parts().blobs.live();
    const SealOutcome outcome = h.seal(client, spec);
    EXPECT_EQ(outcome.status.code(), Code::kInvalidArgument) << outcome.status.to_string();
    EXPECT_FALSE(outcome.status.message().empty());
    EXPECT_FALSE(h.has(spec.id));
    EXPECT_EQ(h.store->parts().blobs.live(), live);
    EXPECT_EQ(h.store->pool().leased_by(client), grant.length);
  }

  ~Hostile() override { h.expect_no_leak(); }
};

TEST_F(Hostile, RangesThatAreNotItsOwn) {
  const LeaseGrant other = h.lease(victim, 64 * kKiB, 64 * kKiB);
  expect_refused({{other.segment, other.offset, 64}}, {});
  expect_refused({{grant.segment, grant.offset + grant.length, 64}}, {});
  expect_refused({{grant.segment, grant.offset + grant.length - 64, 128}}, {});
  expect_refused({{grant.segment, grant.segment_bytes, 64}}, {});
  expect_refused({{grant.segment, UINT64_MAX - 63, 128}}, {});
  expect_refused({{grant.segment, 64, UINT64_MAX - 10}}, {});
  expect_refused({{grant.segment, 0, UINT64_MAX}}, {});
  expect_refused({{0xffff'ffffU, 0, 64}}, {});
  expect_refused({{77, 0, 64}}, {});
  expect_refused({{grant.segment, grant.offset + 1, 64}}, {});  // misaligned
  expect_refused({{grant.segment, grant.offset, 0}}, {});
}

TEST_F(Hostile, OverlappingBlobs) {
  expect_refused({{grant.segment, grant.offset, 256}, {grant.segment, grant.offset + 64, 64}}, {});
  expect_refused({{grant.segment, grant.offset, 64}, {grant.segment, grant.offset, 64}}, {});
  // The larger blob owns all of its last page.
  expect_refused({{grant.segment, grant.offset, 65 * kKiB + 1}, {grant.segment, grant.offset + 65 * kKiB + 64, 64}},
                 {});
  // A range that is already sealed.
  SealSpec first;
  first.id = numbered_id(1000);
  first.session = session;
  first.blobs = {{grant.segment, grant.offset, 128}};
  ASSERT_TRUE(h.seal(client, first).status.is_ok());
  grant.length -= 128;
  expect_refused({{grant.segment, grant.offset, 128}}, {});
  expect_refused({{grant.segment, grant.offset + 64, 128}}, {});
}

TEST_F(Hostile, BuffersOutsideOfTheirBlobs) {
  const BlobRange blob{grant.segment, grant.offset, 128};
  expect_refused({blob}, {{kNewBlobBit, 0, 0, 129}});
  expect_refused({blob}, {{kNewBlobBit, 0, 129, 0}});
  expect_refused({blob}, {{kNewBlobBit, 0, UINT64_MAX, 2}});
  expect_refused({blob}, {{kNewBlobBit, 0, 64, UINT64_MAX}});
  expect_refused({blob}, {{kNewBlobBit | 1, 0, 0, 1}});
  expect_refused({blob}, {{kNewBlobBit | 0x7fff'fffeU, 0, 0, 1}});
  expect_refused({blob}, {{kNewBlobBit, 5, 0, 1}});
  expect_refused({blob}, {{kInlineBlob, 0, 0, 1}});  // the request has no inline payload
}

TEST_F(Hostile, BlobsOfOthersThatAreNotThere) {
  expect_refused({}, {{0, 1, 0, 0}});
  expect_refused({}, {{0x7fff'ffffU, 1, 0, 0}});
  SealSpec spec = h.blob_spec(victim, numbered_id(500), session, 1000);
  ASSERT_TRUE(h.seal(victim, spec).status.is_ok());
  const std::uint32_t generation = h.store->parts().blobs.generation(0);
  expect_refused({}, {{0, generation + 1, 0, 10}});
  expect_refused({}, {{0, generation, 0, 1001}});
  expect_refused({}, {{0, generation, 1000, 1}});
}

TEST_F(Hostile, UnleaseOfWhatIsNotLeased) {
  const LeaseGrant other = h.lease(victim, 64 * kKiB, 64 * kKiB);
  const auto refused = [&](std::uint32_t segment, std::uint64_t offset, std::uint64_t length, bool done) {
    const Status status = h.store->unlease(client, segment, offset, length, done);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  };
  refused(other.segment, other.offset, other.length, false);
  refused(other.segment, 0, 0, true);
  refused(grant.segment, grant.offset, grant.length + 64, false);
  refused(grant.segment, UINT64_MAX, 64, false);
  refused(grant.segment, grant.offset, UINT64_MAX, false);
  refused(4000, 0, 64, true);
  // Tiny pieces, each of which the daemon would have to track.
  refused(grant.segment, grant.offset, 1, false);
  refused(grant.segment, grant.offset + 64, 64 * kKiB, false);
  refused(grant.segment, grant.offset, 64 * kKiB - 64, false);
  EXPECT_TRUE(h.store->unlease(client, grant.segment, grant.offset, 64 * kKiB, false).is_ok());
  refused(grant.segment, grant.offset, 64 * kKiB, false);  // returned twice
}

TEST_F(Hostile, GiantCountsAndTexts) {
  SealSpec spec;
  spec.id = numbered_id(1);
  spec.session = session;
  spec.blobs.assign((1U << 16) + 1, {grant.segment, grant.offset, 64});
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
  spec.blobs.clear();
  spec.buffers.assign((1U << 20) + 1, {kInlineBlob, 0, 0, 0});
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
  spec.buffers.clear();
  const std::string payload(16 * kKiB + 1, 'x');
  spec.payload = payload;
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
  spec.payload = {};
  spec.session = session ^ 0x10000U;
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
  spec.session = 0;
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
}

TEST_F(Hostile, RubbishInAPinTableKeepsMemoryAndBreaksNothing) {
  SealSpec spec = h.blob_spec(victim, numbered_id(500), session, 1000);
  ASSERT_TRUE(h.seal(victim, spec).status.is_ok());
  EXPECT_NE(h.pins(client).pin(0xffff'fff0U, 1), PinTable::kNoPosition);
  EXPECT_NE(h.pins(client).pin(12345, 0xffff'ffffU), PinTable::kNoPosition);
  EXPECT_NE(h.pins(client).pin(0, h.generation(numbered_id(500)) + 1), PinTable::kNoPosition);
  EXPECT_NE(h.store->status_json({}).find("\"pins\":3"), std::string::npos);
  EXPECT_TRUE(h.remove(numbered_id(500)));
  EXPECT_EQ(h.store->parts().deferred.count(), 0U);
}

}  // namespace
}  // namespace entrepot::testing
