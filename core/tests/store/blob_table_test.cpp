// Blob table: publication, references, the way to disk and back, and adoption.
#include "store/object/blob_table.h"

#include <algorithm>

#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

std::vector<std::uint32_t> sorted_slots(const BlobTable& blobs, std::uint32_t blob) {
  std::vector<std::uint32_t> slots = blobs.referencing_slots(blob);
  std::sort(slots.begin(), slots.end());
  return slots;
}

TEST(BlobTable, WithdrawnBlobsLeaveTheirRangesLeased) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::vector<BlobRange> ranges = {f.lease(100 * kKiB), f.lease(4 * kKiB)};
  {
    Result<FreshBlobs> published = blobs.publish(ranges);
    ASSERT_TRUE(published.is_ok()) << published.status().to_string();
    const FreshBlobs fresh = published.take();  // one owner only
    ASSERT_EQ(fresh.blobs().size(), 2U);
    EXPECT_EQ(blobs.live(), 2U);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::uint32_t blob = fresh.blobs()[i];
      EXPECT_TRUE(blobs.is_resident(blob));
      EXPECT_TRUE(blobs.is_sealed(blob, blobs.ref(blob).generation));
      EXPECT_EQ(blobs.place(blob).offset, ranges[i].offset);
      EXPECT_EQ(blobs.references(blob), 0U);
    }
  }
  EXPECT_EQ(blobs.live(), 0U);
  for (const BlobRange& range : ranges)
    EXPECT_TRUE(f.pool.check_leased(kClient, range.segment, range.offset, range.length).is_ok());
}

TEST(BlobTable, PublishesAllRangesOrNone) {
  ControlMemory memory = control_memory(4);
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const BlobRange range = f.lease(4 * kKiB);
  const std::vector<BlobRange> too_many(1000, range);
  EXPECT_EQ(blobs.publish(too_many).code(), Code::kStoreFull);
  EXPECT_EQ(blobs.live(), 0U);
  EXPECT_TRUE(blobs.publish(std::vector{range}).is_ok());
}

TEST(BlobTable, TheLastReferenceFreesRangeAndCopy) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  FakeSpillBackend spill;
  BlobTable blobs(memory, f.pool, &spill, "");
  const std::uint32_t blob = f.put_blob(blobs, 100 * kKiB, {7});
  EXPECT_EQ(f.pool.blob_bytes(), blobs.extent_bytes(blob));
  const RecordBlob ref = blobs.ref(blob);
  BlobRef write = blobs.retain(blob);
  blobs.set_copy(blob, ObjectFixture::write_copy(spill, blobs, blob));
  blobs.drop_reference(blob, 7);
  EXPECT_TRUE(blobs.referencing_slots(blob).empty());
  EXPECT_TRUE(blobs.exists(ref.blob, ref.generation)) << "the write uses it";
  EXPECT_EQ(spill.copies.size(), 1U);
  write.release();
  EXPECT_FALSE(blobs.exists(ref.blob, ref.generation));
  EXPECT_EQ(blobs.live(), 0U);
  EXPECT_EQ(f.pool.blob_bytes(), 0U);
  EXPECT_EQ(spill.copies.size(), 0U);
  EXPECT_EQ(blobs.clean_bytes(), 0U);
}

TEST(BlobRef, IsReleasedByItsLastOwnerOnce) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::uint32_t blob = f.put_blob(blobs, 4 * kKiB, {7});
  const std::uint32_t other = f.put_blob(blobs, 4 * kKiB, {7});
  BlobRef kept;
  {
    BlobRef first = blobs.retain(blob);
    const BlobRef second = blobs.retain(blob);
    EXPECT_EQ(blobs.references(blob), 3U);
    kept = std::move(first);
  }
  EXPECT_EQ(blobs.references(blob), 2U);
  kept = blobs.retain(other);  // instead of the former
  EXPECT_EQ(blobs.references(blob), 1U);
  EXPECT_EQ(blobs.references(other), 2U);
  kept.release();
  kept.release();
  EXPECT_EQ(blobs.references(other), 1U);
}

TEST(BlobRef, KeepsTheBlobUntilItEnds) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::uint32_t blob = f.put_blob(blobs, 4 * kKiB, {7});
  const std::uint32_t generation = blobs.generation(blob);
  {
    const BlobRef ref = blobs.retain(blob);
    blobs.drop_reference(blob, 7);
    EXPECT_TRUE(blobs.exists(blob, generation));
  }
  EXPECT_FALSE(blobs.exists(blob, generation));
  EXPECT_EQ(f.pool.blob_bytes(), 0U);
}

TEST(BlobRef, ADetachedOneAndADeathLeaveTheBlobAsItIs) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::uint32_t detached = f.put_blob(blobs, 4 * kKiB, {7});
  blobs.retain(detached).detach();
  blobs.drop_reference(detached, 7);
  EXPECT_EQ(blobs.references(detached), 1U);
  const std::uint32_t held = f.put_blob(blobs, 4 * kKiB, {7});
  const std::vector<BlobRange> ranges = {f.lease(4 * kKiB)};
  struct Death {};
  try {
    const BlobRef ref = blobs.retain(held);
    const Result<FreshBlobs> fresh = blobs.publish(ranges);
    RecordReferences references(blobs, 8);
    references.add(held);
    throw Death{};
  } catch (const Death&) {
  }
  EXPECT_EQ(blobs.references(held), 3U);
  EXPECT_EQ(blobs.live(), 3U) << "the fresh one too";
}

TEST(RecordReferences, AreDroppedUnlessTheyAreCommitted) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::uint32_t shared = f.put_blob(blobs, 4 * kKiB, {7});
  for (const bool commits : {false, true}) {
    {
      RecordReferences references(blobs, 8);
      references.add(shared);
      EXPECT_EQ(sorted_slots(blobs, shared), (std::vector<std::uint32_t>{7, 8}));
      if (commits) references.commit();
    }
    EXPECT_EQ(blobs.references(shared), commits ? 2U : 1U);
    EXPECT_EQ(sorted_slots(blobs, shared).size(), commits ? 2U : 1U);
  }
}

TEST(BlobTable, KnowsEverySlotThatRefersToABlobInWhateverOrderTheyLeave) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  BlobTable blobs(memory, f.pool, nullptr, "");
  const std::uint32_t other = f.put_blob(blobs, 4 * kKiB, {2});
  for (const std::vector<std::uint32_t>& order :
       {std::vector<std::uint32_t>{1, 2, 3}, {3, 2, 1}, {2, 1, 3}, {2, 3, 1}}) {
    const std::uint32_t blob = f.put_blob(blobs, 4 * kKiB, {1, 2, 3});
    std::vector<std::uint32_t> expected = {1, 2, 3};
    EXPECT_EQ(sorted_slots(blobs, blob), expected);
    for (const std::uint32_t slot : order) {
      blobs.drop_reference(blob, slot);
      std::erase(expected, slot);
      EXPECT_EQ(sorted_slots(blobs, blob), expected);
      EXPECT_EQ(blobs.references(blob), expected.size());
    }
  }
  EXPECT_EQ(sorted_slots(blobs, other), std::vector<std::uint32_t>{2});
  EXPECT_EQ(blobs.live(), 1U);
  EXPECT_TRUE(blobs.referencing_slots(60).empty()) << "a number that no blob ever had";
}

TEST(BlobTable, FiguresFollowABlobToDiskAndBack) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  FakeSpillBackend spill;
  BlobTable blobs(memory, f.pool, &spill, "");
  constexpr std::uint64_t kLength = 100 * kKiB + 1;  // its extent is whole pages
  const std::uint32_t blob = f.put_blob(blobs, kLength, {1});
  const std::uint32_t small = f.put_blob(blobs, 1000, {1});
  const std::uint64_t extent = blobs.extent_bytes(blob);
  EXPECT_GT(extent, kLength);
  EXPECT_EQ(blobs.clean_bytes(), 0U);

  blobs.set_copy(blob, ObjectFixture::write_copy(spill, blobs, blob));
  EXPECT_EQ(blobs.clean_bytes(), extent);
  EXPECT_EQ(blobs.copy(small), 0U);

  const std::uint64_t before = f.pool.blob_bytes();
  const RecordBlob ref = blobs.ref(blob);
  EXPECT_EQ(blobs.evict(blob), extent);
  EXPECT_EQ(f.pool.blob_bytes(), before - extent);
  EXPECT_FALSE(blobs.is_resident(blob));
  EXPECT_TRUE(blobs.exists(ref.blob, ref.generation));
  EXPECT_FALSE(blobs.is_sealed(ref.blob, ref.generation));
  EXPECT_EQ(blobs.clean_bytes(), 0U);
  EXPECT_EQ(blobs.spilled_bytes(), kLength);

  LeaseWait wait;
  const Result<std::optional<BlobLocation>> place = f.pool.allocate_for_load(kLength, wait);
  ASSERT_TRUE(place.is_ok() && place->has_value());
  blobs.on_loaded(blob, **place);
  EXPECT_TRUE(blobs.is_sealed(ref.blob, ref.generation)) << "the same blob, elsewhere";
  EXPECT_EQ(blobs.place(blob).offset, (*place)->offset);
  EXPECT_EQ(blobs.spilled_bytes(), 0U);
  EXPECT_EQ(blobs.clean_bytes(), blobs.extent_bytes(blob));

  EXPECT_NE(blobs.evict(blob), 0U);
  blobs.drop_reference(blob, 1);  // deleted while it is only on disk
  blobs.drop_reference(small, 1);
  EXPECT_EQ(blobs.spilled_bytes(), 0U);
  EXPECT_EQ(blobs.clean_bytes(), 0U);
  EXPECT_EQ(f.pool.blob_bytes(), 0U);
  EXPECT_EQ(spill.copies.size(), 0U);
}

// A daemon dies with a resident blob, a clean one, a spilled one, and one to which no object refers yet.
class AdoptedBlobs : public ::testing::Test {
 protected:
  void SetUp() override {
    ObjectFixture f(memory_);
    BlobTable blobs(memory_, f.pool, &spill_, "");
    resident_ = f.put_blob(blobs, 100 * kKiB, {1});
    clean_ = f.put_blob(blobs, 200 * kKiB, {2});
    spilled_ = f.put_blob(blobs, 300 * kKiB, {3});
    unreferenced_ = f.put_blob(blobs, 400 * kKiB, {});
    blobs.set_copy(clean_, ObjectFixture::write_copy(spill_, blobs, clean_));
    blobs.set_copy(spilled_, ObjectFixture::write_copy(spill_, blobs, spilled_));
    EXPECT_NE(blobs.evict(spilled_), 0U);
    spill_.daemon_died();
  }

  ControlMemory memory_ = control_memory();
  FakeSpillBackend spill_;
  std::uint32_t resident_ = 0;
  std::uint32_t clean_ = 0;
  std::uint32_t spilled_ = 0;
  std::uint32_t unreferenced_ = 0;
};

TEST_F(AdoptedBlobs, HaveTheirRangesAndCopies) {
  ObjectFixture f(memory_);
  BlobTable blobs(memory_, f.pool, &spill_, "");
  EXPECT_EQ(f.pool.adopt_begin(), 0U);
  const BlobAdoption adopted = blobs.adopt();
  EXPECT_EQ(adopted.sealed.size(), 3U);
  EXPECT_EQ(adopted.spilled, std::vector<std::uint32_t>{spilled_});
  for (const std::uint32_t blob : {resident_, clean_, spilled_}) {
    const Status claimed = blobs.claim(blob);
    EXPECT_TRUE(claimed.is_ok()) << claimed.to_string();
    blobs.add_reference(blob, blob);
  }
  EXPECT_EQ(blobs.clean_bytes(), blobs.extent_bytes(clean_));
  EXPECT_EQ(blobs.spilled_bytes(), 300 * kKiB);
  EXPECT_EQ(blobs.live(), 4U);
  blobs.free_unreferenced(adopted);
  EXPECT_EQ(blobs.live(), 3U);
  f.pool.adopt_end(false);
  EXPECT_EQ(f.pool.blob_bytes(), blobs.extent_bytes(resident_) + blobs.extent_bytes(clean_));
  for (const std::uint32_t blob : {resident_, clean_, spilled_})
    blobs.drop_reference(blob, blob);
  EXPECT_EQ(f.pool.blob_bytes(), 0U);
  EXPECT_EQ(blobs.spilled_bytes() + blobs.clean_bytes(), 0U);
}

TEST_F(AdoptedBlobs, WithoutSpillBackendSayWhyTheyCannotBeRead) {
  ObjectFixture f(memory_);
  BlobTable blobs(memory_, f.pool, nullptr, "there is no key");
  EXPECT_EQ(f.pool.adopt_begin(), 0U);
  static_cast<void>(blobs.adopt());
  const Status refused = blobs.claim(spilled_);
  EXPECT_EQ(refused.code(), Code::kStoreUnavailable);
  EXPECT_NE(refused.message().find("there is no key"), std::string::npos) << refused.message();
  EXPECT_TRUE(blobs.claim(clean_).is_ok()) << "its bytes are in memory";
  EXPECT_EQ(blobs.copy(clean_), 0U) << "nobody could release its copy";
  EXPECT_EQ(blobs.clean_bytes() + blobs.spilled_bytes(), 0U);
}

TEST_F(AdoptedBlobs, AreLostOnlyIfTheirOnlyCopyIs) {
  spill_.copies.clear();
  ObjectFixture f(memory_);
  BlobTable blobs(memory_, f.pool, &spill_, "");
  EXPECT_EQ(f.pool.adopt_begin(), 0U);
  static_cast<void>(blobs.adopt());
  EXPECT_EQ(blobs.claim(spilled_).code(), Code::kObjectLost);
  EXPECT_TRUE(blobs.claim(clean_).is_ok());
  EXPECT_EQ(blobs.copy(clean_), 0U);
}

TEST(BlobTable, TakesOverACopyOfAnEarlierStore) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  FakeSpillBackend spill;
  spill.copies[40] = {{9, 5}, 3000, false};
  BlobTable blobs(memory, f.pool, &spill, "");
  const Result<RecordBlob> ref = blobs.publish_copy({{9, 5}, 3000, 40});
  ASSERT_TRUE(ref.is_ok()) << ref.status().to_string();
  EXPECT_TRUE(blobs.exists(ref->blob, ref->generation));
  EXPECT_FALSE(blobs.is_resident(ref->blob));
  EXPECT_EQ(blobs.spilled_bytes(), 3000U);
  EXPECT_EQ(spill.copies.at(blobs.copy(ref->blob)).key, blobs.key(ref->blob)) << "the copy is this blob's now";

  EXPECT_EQ(blobs.publish_copy({{9, 5}, 3000, 40}).code(), Code::kObjectLost);
  EXPECT_EQ(blobs.live(), 1U) << "a copy that is gone leaves no blob behind";
}

}  // namespace
}  // namespace entrepot::testing
