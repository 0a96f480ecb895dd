// Object catalog: publication, lookups, generations, and the end of objects.
#include "store/object/object_catalog.h"

#include <set>

#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

TEST(ObjectCatalog, CountsAndFindsAnObjectUntilItIsUnlinked) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  EXPECT_FALSE(f.catalog.find(kA).has_value());
  const std::uint32_t slot = f.put_object(kA, session, {}, 500);
  static_cast<void>(f.put_object(kB, session, {}, 70));
  EXPECT_EQ(f.catalog.find(kA), slot);
  EXPECT_TRUE(f.catalog.is_resident(slot));
  EXPECT_EQ(f.catalog.count(), 2U);
  EXPECT_EQ(f.catalog.payload_bytes(), 570U);
  EXPECT_EQ(f.sessions.use(session).objects, 2U);
  EXPECT_EQ(f.sessions.use(session).bytes, 570U);

  f.catalog.unlink(slot);
  EXPECT_FALSE(f.catalog.find(kA).has_value());
  EXPECT_TRUE(f.catalog.find(kB).has_value());
  EXPECT_EQ(f.catalog.count(), 1U);
  EXPECT_EQ(f.catalog.payload_bytes(), 70U);
  EXPECT_EQ(f.sessions.use(session).objects, 1U);
  EXPECT_EQ(f.catalog.directory().state(slot), ObjectState::kDeleting);
  EXPECT_EQ(f.catalog.directory().at(slot).id, kA) << "readers that pin it still read the slot";
  EXPECT_TRUE(f.catalog.record(slot).is_ok());
}

TEST(ObjectCatalog, FindsWhatIsOnDiskButNotWhatIsEnding) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t slot = f.put_object(kA, f.start());
  DirectoryWriter& directory = f.catalog.directory();
  directory.mark_evicting(slot);
  EXPECT_TRUE(f.catalog.find(kA).has_value());
  EXPECT_FALSE(f.catalog.is_resident(slot));
  directory.mark_spilled(slot);
  EXPECT_TRUE(f.catalog.find(kA).has_value());
  directory.mark_deleting(slot);
  EXPECT_FALSE(f.catalog.find(kA).has_value());
}

TEST(ObjectCatalog, ReplacesAnObjectInOneStep) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  const std::uint32_t old_slot = f.put_object(kA, session);
  const Result<std::uint32_t> slot = f.catalog.allocate();
  ASSERT_TRUE(slot.is_ok());
  SlotFields fields;
  fields.id = kA;
  fields.session = session;
  f.catalog.publish_sealed(*slot, fields, MemoryKind::kUnknown);
  f.catalog.add(*slot);
  EXPECT_EQ(f.catalog.find(kA), old_slot);
  EXPECT_TRUE(f.catalog.replace(old_slot, *slot));
  EXPECT_EQ(f.catalog.find(kA), *slot);
  f.catalog.unlink(old_slot);
  EXPECT_EQ(f.catalog.find(kA), *slot) << "the old slot does not take the new one's entry with it";
  EXPECT_EQ(f.catalog.count(), 1U);
  EXPECT_FALSE(f.catalog.replace(old_slot, *slot)) << "it is not in the index any more";
}

TEST(ObjectCatalog, GivesEveryObjectAGenerationThatNoOtherHad) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  std::set<std::uint32_t> generations;
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::uint32_t kept = f.put_object(numbered_id(100 + round), session);
    const std::uint32_t ended = f.put_object(kA, session);  // its slot is used again in the next round
    EXPECT_TRUE(generations.insert(f.catalog.directory().generation(kept)).second);
    EXPECT_TRUE(generations.insert(f.catalog.directory().generation(ended)).second);
    f.catalog.unlink(ended);
    f.catalog.directory().free(ended);
  }
}

TEST(ObjectCatalog, GenerationsSkipTheNumbersThatMeanSomethingElse) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  memory.root().generation_seed.store(kLastGeneration - 3, std::memory_order_relaxed);
  const std::uint32_t last = f.put_object(kA, session);
  const std::uint32_t first = f.put_object(kB, session);
  EXPECT_EQ(f.catalog.directory().generation(last), kLastGeneration - 2);
  EXPECT_EQ(f.catalog.directory().generation(first), 1U);
}

TEST(ObjectCatalog, AnObjectFromDiskKeepsItsGeneration) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  const Result<std::uint32_t> slot = f.catalog.allocate();
  ASSERT_TRUE(slot.is_ok());
  SlotFields fields;
  fields.id = kA;
  fields.session = session;
  f.catalog.publish_spilled(*slot, fields, 4711);
  EXPECT_EQ(f.catalog.directory().generation(*slot), 4711U);
  EXPECT_EQ(f.catalog.directory().state(*slot), ObjectState::kSpilled);
  EXPECT_EQ(f.catalog.target(*slot), (PinTarget{*slot, 4711}));
}

TEST(ObjectCatalog, ListsTheBlobsOfARecord) {
  ControlMemory memory = control_memory();
  ObjectFixture f(memory);
  const std::uint32_t session = f.start();
  const std::uint32_t slot = f.put_object(kA, session, {{5, 1}, {3, 2}});
  EXPECT_EQ(f.catalog.blobs_of(slot), (std::vector<std::uint32_t>{5, 3}));
  EXPECT_TRUE(f.catalog.blobs_of(f.put_object(kB, session)).empty());

  const Slot& entry = f.catalog.directory().at(slot);
  const std::uint64_t used = f.records.used_bytes();
  f.catalog.free_record(slot, entry.record_offset, entry.record_bytes);
  EXPECT_LT(f.records.used_bytes(), used);
}

TEST(ObjectCatalog, ASuccessorFindsNothingUntilItHasEnteredIt) {
  ControlMemory memory = control_memory();
  std::uint32_t kept = 0;
  std::uint32_t deleted = 0;
  {
    ObjectFixture f(memory);
    const std::uint32_t session = f.start();
    kept = f.put_object(kA, session, {}, 500);
    deleted = f.put_object(kB, session);
    f.catalog.unlink(deleted);
  }
  ObjectFixture f(memory);
  static_cast<void>(f.sessions.adopt());
  const Result<DirectoryAdoption> adopted = f.catalog.adopt();
  ASSERT_TRUE(adopted.is_ok()) << adopted.status().to_string();
  EXPECT_EQ(adopted->sealed, std::vector<std::uint32_t>{kept});
  EXPECT_EQ(adopted->deleting, std::vector<std::uint32_t>{deleted});
  EXPECT_FALSE(f.catalog.find(kA).has_value());
  EXPECT_EQ(f.catalog.count(), 0U);
  EXPECT_TRUE(f.catalog.insert(kept).is_ok());
  f.catalog.add(kept);
  EXPECT_EQ(f.catalog.find(kA), kept);
  EXPECT_EQ(f.catalog.payload_bytes(), 500U);
}

}  // namespace
}  // namespace entrepot::testing
