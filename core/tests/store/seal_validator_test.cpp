// Seal validator: what is refused before anything is written, and what a valid request resolves to.
#include "store/object/seal_validator.h"

#include <limits>

#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

class SealValidatorTest : public ::testing::Test {
 protected:
  // An object of one new blob.
  SealSpec blob_spec(std::uint64_t bytes) {
    SealSpec spec;
    spec.id = kA;
    spec.session = f_.sessions.handle(session_);
    spec.blobs = {f_.lease(bytes)};
    spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
    spec.tree = "tree";
    return spec;
  }

  SealSpec inline_spec(std::string_view payload) {
    SealSpec spec;
    spec.id = kA;
    spec.session = f_.sessions.handle(session_);
    spec.buffers = {{kInlineBlob, 0, 0, payload.size()}};
    spec.payload = payload;
    return spec;
  }

  [[nodiscard]] Status check(const SealSpec& spec, std::uint32_t client = kClient) const {
    return validator_.check(client, spec, f_.catalog.find(spec.id)).status();
  }

  void expect_refused(const SealSpec& spec, std::string_view why) const {
    const Status status = check(spec);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }

  // Seals the object of blob_spec() as ObjectTable does. Returns its slot.
  std::uint32_t seal(const SealSpec& spec) {
    Result<FreshBlobs> fresh = blobs_.publish(spec.blobs);
    EXPECT_TRUE(fresh.is_ok()) << fresh.status().to_string();
    fresh->commit();
    const RecordBlob ref = blobs_.ref(fresh->blobs()[0]);
    const std::vector<BufferRef> buffers = {{ref.blob, ref.generation, 0, spec.blobs[0].length}};
    const std::vector<RecordBlob> refs = {ref};
    const Result<std::uint32_t> slot = f_.catalog.allocate();
    EXPECT_TRUE(slot.is_ok()) << slot.status().to_string();
    SlotFields fields;
    fields.id = spec.id;
    fields.session = session_;
    fields.payload_bytes = spec.blobs[0].length;
    const Result<std::uint64_t> record =
        f_.records.write({buffers, refs, spec.tree, spec.payload}, fields.record_bytes);
    EXPECT_TRUE(record.is_ok()) << record.status().to_string();
    fields.record_offset = *record;
    f_.catalog.publish_sealed(*slot, fields, MemoryKind::kUnknown);
    blobs_.add_reference(ref.blob, *slot);
    blobs_.take_ranges(spec.blobs);
    f_.catalog.add(*slot);
    EXPECT_TRUE(f_.catalog.insert(*slot).is_ok());
    return *slot;
  }

  ControlMemory memory_ = control_memory();
  ObjectFixture f_{memory_};
  std::uint32_t session_ = f_.start();
  BlobTable blobs_{memory_, f_.pool, nullptr, ""};
  SealValidator validator_{f_.sessions, f_.sets, f_.names, f_.pool, f_.catalog, blobs_};
};

TEST_F(SealValidatorTest, ResolvesAValidRequestAndChangesNothing) {
  SealSpec spec = blob_spec(100 * kKiB);
  spec.payload = "inline";
  spec.buffers.push_back({kInlineBlob, 0, 2, 4});
  spec.consumers = 3;
  const Result<ValidatedSeal> validated = validator_.check(kClient, spec, std::nullopt);
  ASSERT_TRUE(validated.is_ok()) << validated.status().to_string();
  EXPECT_EQ(validated->session, session_);
  EXPECT_EQ(validated->locality_set, 0U);
  EXPECT_EQ(validated->consumers, 3U);
  EXPECT_EQ(validated->payload_bytes, 100 * kKiB + 4);
  EXPECT_EQ(blobs_.live(), 0U);
  EXPECT_EQ(f_.catalog.directory().live(), 0U);
  EXPECT_TRUE(check(spec).is_ok());
}

TEST_F(SealValidatorTest, TakesTheNumberOfConsumersFromTheSet) {
  SetChange change;
  change.fields = kSetLifetime;
  change.attributes.lifetime = Lifetime::kConsumers;
  change.attributes.consumers = 5;
  const Result<std::uint32_t> set = f_.sets.define(session_, "set", change);
  ASSERT_TRUE(set.is_ok()) << set.status().to_string();
  SealSpec spec = inline_spec("x");
  spec.locality_set = f_.sets.handle(*set);
  Result<ValidatedSeal> validated = validator_.check(kClient, spec, std::nullopt);
  ASSERT_TRUE(validated.is_ok()) << validated.status().to_string();
  EXPECT_EQ(validated->consumers, 5U);
  EXPECT_EQ(validated->locality_set, f_.sets.field_of(*set));
  spec.consumers = 2;  // its own number counts
  validated = validator_.check(kClient, spec, std::nullopt);
  ASSERT_TRUE(validated.is_ok());
  EXPECT_EQ(validated->consumers, 2U);
}

TEST_F(SealValidatorTest, RefusesRangesThatAreNotABlob) {
  SealSpec spec = blob_spec(100 * kKiB);
  spec.blobs[0].length = 0;
  expect_refused(spec, "it must not be empty");
  spec = blob_spec(100 * kKiB);
  spec.blobs[0].offset += kBlobAlign / 2;
  expect_refused(spec, "must start at a multiple of");
}

TEST_F(SealValidatorTest, RefusesMemoryThatIsNotLeasedToTheClient) {
  SealSpec spec = blob_spec(100 * kKiB);
  EXPECT_TRUE(check(spec).is_ok());
  EXPECT_EQ(check(spec, kClient + 1).code(), Code::kInvalidArgument);
  for (const std::uint64_t length : {std::uint64_t{1} << 40, std::numeric_limits<std::uint64_t>::max()}) {
    spec.blobs[0].length = length;
    EXPECT_EQ(check(spec).code(), Code::kInvalidArgument) << length;
  }
  spec = blob_spec(100 * kKiB);
  spec.blobs[0].segment = 60;
  EXPECT_EQ(check(spec).code(), Code::kInvalidArgument);
}

TEST_F(SealValidatorTest, RefusesBlobsThatOverlap) {
  SealSpec spec = blob_spec(128 * kKiB);
  const BlobRange whole = spec.blobs[0];
  spec.buffers = {};
  spec.blobs = {{whole.segment, whole.offset + kBlobAlign, 1000}, {whole.segment, whole.offset, 100}};
  spec.blobs[1].length = kBlobAlign + 1;  // one byte into the other, which comes first in the request
  expect_refused(spec, "overlap");
  spec.blobs[1].length = kBlobAlign;
  EXPECT_TRUE(check(spec).is_ok());
}

TEST_F(SealValidatorTest, RefusesBuffersBeyondTheirBlob) {
  SealSpec spec = blob_spec(100 * kKiB);
  spec.buffers = {{kNewBlobBit, 0, 100 * kKiB - 1, 2}};
  expect_refused(spec, "exceeds its blob");
  spec.buffers = {{kNewBlobBit, 0, 1, std::numeric_limits<std::uint64_t>::max()}};
  expect_refused(spec, "exceeds its blob");
  spec.buffers = {{kNewBlobBit | 1, 0, 0, 1}};
  expect_refused(spec, "the number of new blobs is 1");
  spec.buffers = {{kNewBlobBit, 7, 0, 1}};
  expect_refused(spec, "specifies a generation");
  spec.buffers = {{kInlineBlob, 0, 0, 1}};
  expect_refused(spec, "exceeds its blob of 0 bytes");
}

TEST_F(SealValidatorTest, SharesOnlyBlobsThatExistInMemory) {
  const std::uint32_t blob = f_.put_blob(blobs_, 4 * kKiB, {1});
  const std::uint32_t generation = blobs_.generation(blob);
  SealSpec spec = inline_spec("");
  spec.buffers = {{blob, generation, 0, 4 * kKiB}};
  EXPECT_TRUE(check(spec).is_ok());
  spec.buffers[0].generation = generation + 1;
  expect_refused(spec, "does not exist (any more)");
  spec.buffers[0] = {63, 1, 0, 1};
  expect_refused(spec, "does not exist (any more)");
  spec.buffers[0] = {blob, generation, 0, 4 * kKiB + 1};
  expect_refused(spec, "exceeds its blob");
  blobs_.drop_reference(blob, 1);
  spec.buffers[0] = {blob, generation, 0, 1};
  expect_refused(spec, "does not exist (any more)");
}

TEST_F(SealValidatorTest, RefusesMoreThanAnObjectMayHave) {
  SealSpec spec = inline_spec("");
  const std::string payload(kInlineMaxBytes + 1, 'x');
  spec.payload = payload;
  expect_refused(spec, "lease memory for it");
  spec = inline_spec("");
  spec.blobs.resize((1U << 16) + 1);
  expect_refused(spec, "split it");
  spec = inline_spec("");
  spec.buffers.resize((1U << 20) + 1);
  expect_refused(spec, "split it");
  spec = inline_spec("");
  const std::string tree((32U << 20) + 1, 'x');
  spec.tree = tree;
  expect_refused(spec, "split it");
  spec = inline_spec("x");
  spec.session = 12345;
  EXPECT_EQ(check(spec).code(), Code::kInvalidArgument);
}

TEST_F(SealValidatorTest, AReplacementMayUseWhatItsPredecessorLeaves) {
  const SessionLimits limits{0, 150 * kKiB, 1};
  ASSERT_TRUE(f_.sessions.open("scope", "run", &limits, 0).is_ok());
  const std::uint32_t slot = seal(blob_spec(100 * kKiB));
  SealSpec next = blob_spec(140 * kKiB);
  EXPECT_TRUE(validator_.check(kClient, next, slot).is_ok());
  next.id = kB;
  EXPECT_EQ(validator_.check(kClient, next, std::nullopt).code(), Code::kStoreFull);
  next = blob_spec(160 * kKiB);
  EXPECT_EQ(validator_.check(kClient, next, slot).code(), Code::kStoreFull);
}

TEST_F(SealValidatorTest, ANameIsCheckedBeforeAnythingIsSealed) {
  ASSERT_TRUE(f_.names.bind(session_, "name", kB, 1, false).is_ok());
  SealSpec spec = inline_spec("x");
  spec.name = "name";
  EXPECT_EQ(check(spec).code(), Code::kObjectExists);
  spec.replace = true;
  EXPECT_TRUE(check(spec).is_ok());
}

TEST_F(SealValidatorTest, ARepeatedRequestIsTheSameInEveryPart) {
  const SealSpec spec = blob_spec(100 * kKiB);
  const std::uint32_t slot = seal(spec);
  EXPECT_TRUE(validator_.is_same(slot, spec));
  SealSpec other = spec;
  other.tree = "bush";
  EXPECT_FALSE(validator_.is_same(slot, other));
  other = spec;
  other.payload = "x";
  EXPECT_FALSE(validator_.is_same(slot, other));
  other = spec;
  other.buffers[0].length -= 1;
  EXPECT_FALSE(validator_.is_same(slot, other));
  other = spec;
  other.buffers.push_back(other.buffers[0]);
  EXPECT_FALSE(validator_.is_same(slot, other));
  other = spec;
  other.blobs[0].offset += 64 * kKiB;
  EXPECT_FALSE(validator_.is_same(slot, other));
  other = spec;
  other.blobs.push_back(other.blobs[0]);
  EXPECT_FALSE(validator_.is_same(slot, other));
}

TEST_F(SealValidatorTest, ARequestIsNotTheSameOnceItsBytesLeftMemory) {
  FakeSpillBackend spill;
  const SealSpec spec = blob_spec(100 * kKiB);
  const std::uint32_t slot = seal(spec);
  const std::uint32_t blob = f_.catalog.blobs_of(slot)[0];
  blobs_.set_copy(blob, ObjectFixture::write_copy(spill, blobs_, blob));
  EXPECT_NE(blobs_.evict(blob), 0U);
  EXPECT_FALSE(validator_.is_same(slot, spec)) << "the range may belong to another object by now";
}

}  // namespace
}  // namespace entrepot::testing
