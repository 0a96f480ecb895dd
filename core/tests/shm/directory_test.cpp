#include "shm/directory.h"

#include <gtest/gtest.h>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

using testing::FakeStore;
using testing::numbered_id;

TEST(Directory, PublishedFieldsAreReadBack) {
  FakeStore store;
  const std::uint32_t slot = store.directory.allocate().take();
  const SlotFields fields{.id = numbered_id(1),
                          .session = 2,
                          .record_offset = 3 * kRecordAlign,
                          .record_bytes = 4,
                          .payload_bytes = 5,
                          .sealed_unix_ns = 6,
                          .creator = 7,
                          .locality_set = 8};
  store.directory.publish_sealed(slot, fields, MemoryKind::kHugePages);
  ASSERT_TRUE(store.index.insert(fields.id, slot).is_ok());
  const std::optional<SlotSnapshot> snapshot = store.reader.find(fields.id);
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->generation(), 1U);
  EXPECT_EQ(snapshot->kind(), MemoryKind::kHugePages);
  const Slot& read = store.reader.slot(snapshot->slot);
  EXPECT_EQ(read.id, fields.id);
  EXPECT_EQ(read.session, 2U);
  EXPECT_EQ(read.record_offset, 3 * kRecordAlign);
  EXPECT_EQ(read.record_bytes, 4U);
  EXPECT_EQ(read.payload_bytes, 5U);
  EXPECT_EQ(read.sealed_unix_ns, 6U);
  EXPECT_EQ(read.creator, 7U);
  EXPECT_EQ(read.locality_set, 8U);
}

TEST(Directory, ADeletingObjectIsNotFoundAndFailsTheRecheck) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  const SlotSnapshot snapshot = *store.reader.find(numbered_id(1));
  EXPECT_TRUE(store.reader.recheck(snapshot));
  EXPECT_EQ(store.directory.mark_deleting(slot), snapshot.word);
  EXPECT_FALSE(store.reader.recheck(snapshot));
  // Even while the index still names the slot.
  EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value());
}

TEST(Directory, WhatIsInColdStorageExistsAndIsNotFoundForReading) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  store.directory.mark_spilled(slot);
  EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.at(slot, 1, numbered_id(1)).has_value());
  const auto snapshot = store.reader.find_existing(numbered_id(1));
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->slot, slot);
  EXPECT_TRUE(store.reader.existing_at(slot, snapshot->generation(), numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.existing_at(slot, snapshot->generation() + 1, numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.existing_at(slot, snapshot->generation(), numbered_id(2)).has_value());
  store.directory.mark_sealed(slot);
  EXPECT_TRUE(store.reader.still_exists(*snapshot));  // evicted and reloaded meanwhile
  EXPECT_FALSE(store.reader.recheck(*snapshot));
  store.directory.mark_deleting(slot);
  EXPECT_FALSE(store.reader.still_exists(*snapshot));
  EXPECT_FALSE(store.reader.find_existing(numbered_id(1)).has_value());
}

TEST(Directory, NothingOfAnObjectIsReadWhileItIsEvicting) {
  // The daemon has scanned the pins or is about to: a reader that pins now may be too late, and the record may be
  // freed.
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  const SlotSnapshot before = *store.reader.find_existing(numbered_id(1));
  store.directory.mark_evicting(slot);
  EXPECT_FALSE(store.reader.recheck(before));
  EXPECT_FALSE(store.reader.still_exists(before));
  EXPECT_FALSE(store.reader.find_existing(numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.existing_at(slot, before.generation(), numbered_id(1)).has_value());
  store.directory.mark_dropped(slot);
  EXPECT_FALSE(store.reader.still_exists(before));
  EXPECT_FALSE(store.reader.find_existing(numbered_id(1)).has_value());
}

TEST(Directory, ASlotReusedByAnotherIdIsNotMistaken) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  const SlotSnapshot old = *store.reader.find(numbered_id(1));
  store.directory.mark_deleting(slot);
  store.directory.free(slot);
  // The index still has the first ID's entry, but the slot now holds another object.
  const std::uint32_t reused = store.directory.allocate().take();
  ASSERT_EQ(reused, slot);
  store.directory.publish_sealed(reused, {.id = numbered_id(2)});
  EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.recheck(old));
  EXPECT_EQ(store.directory.generation(slot), 2U);
}

TEST(Directory, AtChecksEverythingTheDaemonSaid) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  EXPECT_TRUE(store.reader.at(slot, 1, numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.at(slot, 2, numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.at(slot, 1, numbered_id(2)).has_value());
  EXPECT_FALSE(store.reader.at(store.reader.high_water(), 1, numbered_id(1)).has_value());
  EXPECT_FALSE(store.reader.at(0xffff'ffffU, 1, numbered_id(1)).has_value());
  store.directory.mark_deleting(slot);
  EXPECT_FALSE(store.reader.at(slot, 1, numbered_id(1)).has_value());
}

TEST(Directory, EachByteOfTheIdIsCompared) {
  FakeStore store;
  const IdBytes id = numbered_id(1);
  const std::uint32_t slot = store.seal(id);
  const Slot& read = store.reader.slot(slot);
  EXPECT_TRUE(slot_id_equals(read, id));
  for (std::size_t i = 0; i < id.size(); ++i) {
    IdBytes other = id;
    other[i] ^= 0x80;
    EXPECT_FALSE(slot_id_equals(read, other)) << i;
  }
}

TEST(Directory, TheLastGenerationRetiresTheSlot) {
  FakeStore store;
  const std::uint32_t slot = store.directory.allocate().take();
  store.directory.table().set_next_generation(slot, kLastGeneration);
  EXPECT_EQ(Word::generation(store.directory.publish_sealed(slot, {.id = numbered_id(1)})), kLastGeneration);
  store.directory.mark_deleting(slot);
  store.directory.free(slot);
  EXPECT_EQ(store.directory.retired(), 1U);
  EXPECT_EQ(store.directory.state(slot), ObjectState::kFree);
  EXPECT_FALSE(store.reader.at(slot, kLastGeneration, numbered_id(1)).has_value());
  for (std::uint64_t i = 0; i < 1000; ++i)
    EXPECT_NE(store.seal(numbered_id(i)), slot);
}

}  // namespace
}  // namespace entrepot
