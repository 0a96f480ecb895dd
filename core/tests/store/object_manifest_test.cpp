// Object manifest: which objects are listed, with what, and until when.
#include "store/object/object_manifest.h"

#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

class ObjectManifestTest : public ::testing::Test {
 protected:
  void write_copy(std::uint32_t blob) { blobs_.set_copy(blob, ObjectFixture::write_copy(spill_, blobs_, blob)); }

  ControlMemory memory_ = control_memory();
  ObjectFixture f_{memory_};
  std::uint32_t session_ = f_.start();
  FakeSpillBackend spill_;
  BlobTable blobs_{memory_, f_.pool, &spill_, ""};
  ObjectManifest manifest_{f_.catalog, blobs_, f_.sessions, f_.names, &spill_};
  std::uint32_t first_ = f_.put_blob(blobs_, 100 * kKiB, {});
  std::uint32_t second_ = f_.put_blob(blobs_, 5000, {});
  std::uint32_t slot_ = f_.put_object(kA, session_, {blobs_.ref(first_), blobs_.ref(second_)});
};

TEST_F(ObjectManifestTest, ListsAnObjectOnceAllItsBlobsHaveCopies) {
  manifest_.remember(slot_);
  write_copy(first_);
  manifest_.remember(slot_);
  EXPECT_TRUE(spill_.manifest.empty());
  EXPECT_FALSE(f_.catalog.directory().in_manifest(slot_));
  write_copy(second_);
  ASSERT_TRUE(f_.names.bind(session_, "name", kA, 1, false).is_ok());
  manifest_.remember(slot_);
  EXPECT_TRUE(f_.catalog.directory().in_manifest(slot_));
  ASSERT_TRUE(spill_.manifest.contains(kA));
  const SpilledObject& object = spill_.manifest.at(kA);
  EXPECT_EQ(object.generation, f_.catalog.directory().generation(slot_));
  EXPECT_EQ(object.scope, "scope");
  EXPECT_EQ(object.session, "run");
  EXPECT_EQ(object.names, std::vector<std::string>{"name"});
  ASSERT_EQ(object.blobs.size(), 2U);
  EXPECT_EQ(object.blobs[0].key, blobs_.key(first_));
  EXPECT_EQ(object.blobs[1].length, 5000U);
  EXPECT_EQ(object.blobs[1].location, blobs_.copy(second_));
  const Result<RecordView> record = f_.catalog.record(slot_);
  ASSERT_TRUE(record.is_ok());
  EXPECT_EQ(object.record.size(), record->bytes().size());
}

TEST_F(ObjectManifestTest, ListsNothingThatStaysInItsRecordOrEndsWithItsSession) {
  manifest_.remember(f_.put_object(kB, session_));
  write_copy(first_);
  write_copy(second_);
  f_.sessions.mark_dead(session_);
  manifest_.remember(slot_);
  EXPECT_TRUE(spill_.manifest.empty());
}

TEST_F(ObjectManifestTest, ForgetsOnlyThisVersionOfTheObject) {
  write_copy(first_);
  write_copy(second_);
  manifest_.remember(slot_);
  const std::uint32_t newer = f_.put_object(kB, session_);
  manifest_.forget(newer);  // it is not listed
  EXPECT_EQ(spill_.manifest.size(), 1U);
  spill_.manifest.at(kA).generation += 1;  // replaced, and the new version is listed already
  manifest_.forget(slot_);
  EXPECT_EQ(spill_.manifest.size(), 1U);
  EXPECT_FALSE(f_.catalog.directory().in_manifest(slot_));
}

TEST_F(ObjectManifestTest, WithoutSpillBackendNothingIsListed) {
  write_copy(first_);
  write_copy(second_);
  ObjectManifest none(f_.catalog, blobs_, f_.sessions, f_.names, nullptr);
  none.remember(slot_);
  EXPECT_FALSE(f_.catalog.directory().in_manifest(slot_));
  none.forget(slot_);
}

}  // namespace
}  // namespace entrepot::testing
