// Object residency alone: what leaves memory, what comes back, and how an object ends.
#include "store/object/object_residency.h"

#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

struct Residency : ::testing::Test {
  [[nodiscard]] std::uint32_t blob_of(std::uint32_t slot) const { return parts.parts.catalog.blobs_of(slot).front(); }
  [[nodiscard]] ObjectState state(std::uint32_t slot) const { return parts.parts.catalog.directory().state(slot); }
  // As the spill writer does.
  void make_clean(std::uint32_t slot) {
    parts.writer.write(slot);
    for (const SpillCompletion& done : parts.end_io())
      static_cast<void>(parts.writer.complete(done));
  }
  std::vector<std::uint32_t> evict(const std::vector<std::uint32_t>& slots) {
    return parts.residency.evict(slots).evicted;
  }
  // Memory for the blob, as the loader takes it.
  [[nodiscard]] BlobLocation place_for(std::uint32_t blob) {
    LeaseWait wait;
    const auto place = parts.pool.allocate_for_load(parts.parts.blobs.place(blob).length, wait);
    EXPECT_TRUE(place.is_ok() && place->has_value());
    return **place;
  }
  using Slots = std::vector<std::uint32_t>;

  PagingParts parts;
  ObjectResidency& residency = parts.residency;
};

TEST_F(Residency, OnlyACleanObjectLeaves) {
  const std::uint32_t slot = parts.put(1);
  EXPECT_FALSE(residency.is_clean(slot));
  EXPECT_EQ(residency.resident_bytes(slot), 2 * kMiB);
  EXPECT_EQ(evict({slot}), Slots{});
  make_clean(slot);
  EXPECT_TRUE(residency.is_clean(slot));
  const ObjectResidency::Eviction eviction = residency.evict(Slots{slot});
  EXPECT_EQ(eviction.evicted, Slots{slot});
  EXPECT_EQ(eviction.bytes, 2 * kMiB);
  EXPECT_EQ(residency.resident_bytes(slot), 0U);
  EXPECT_EQ(state(slot), ObjectState::kSpilled);
}

TEST_F(Residency, APinnedObjectKeepsWhatItSharesInMemory) {
  const std::uint32_t slot = parts.put(1);
  const std::uint32_t sharing = parts.put_sharing(2, slot);
  make_clean(slot);
  parts.pin(sharing);
  EXPECT_EQ(evict({slot}), Slots{});
  EXPECT_EQ(state(slot), ObjectState::kSealed);
  EXPECT_EQ(state(sharing), ObjectState::kSealed);
}

TEST_F(Residency, ObjectsThatShareABlobLeaveAndReturnTogether) {
  const std::uint32_t slot = parts.put(1);
  const std::uint32_t sharing = parts.put_sharing(2, slot);
  make_clean(slot);
  EXPECT_EQ(evict({slot}), (Slots{slot, sharing}));
  const std::uint32_t blob = blob_of(slot);
  EXPECT_EQ(residency.on_blob_loaded(blob, place_for(blob)), (Slots{slot, sharing}));
  EXPECT_TRUE(parts.parts.catalog.is_resident(slot) && parts.parts.catalog.is_resident(sharing));
  EXPECT_TRUE(residency.is_clean(slot)) << "the copy stays";
}

TEST_F(Residency, ALostObjectSaysWhyAndLeavesNothing) {
  const std::uint32_t slot = parts.put_spilled(1);
  residency.mark_lost(slot, "the disk is gone");
  EXPECT_EQ(parts.lookup(1), Code::kObjectLost);
  EXPECT_NE(parts.objects.lookup(numbered_id(1)).message.find("the disk is gone"), std::string::npos);
  EXPECT_EQ(parts.parts.blobs.live(), 0U);
  EXPECT_EQ(parts.spill.copies.size(), 0U);
}

TEST_F(Residency, DropsWhatNobodyPinsSharesOrWrites) {
  const std::uint32_t pinned = parts.put(1);
  parts.pin(pinned);
  EXPECT_FALSE(residency.drop(pinned));
  EXPECT_EQ(state(pinned), ObjectState::kSealed);
  const std::uint32_t shared = parts.put(2);
  static_cast<void>(parts.put_sharing(3, shared));
  EXPECT_FALSE(residency.drop(shared));
  const std::uint32_t written = parts.put(4);
  parts.writer.write(written);
  EXPECT_FALSE(residency.drop(written)) << "the write holds its blob";
  for (const SpillCompletion& done : parts.end_io())
    static_cast<void>(parts.writer.complete(done));
  EXPECT_FALSE(residency.drop(written)) << "it has a copy";
  const std::uint32_t slot = parts.put(5);
  const std::uint32_t blobs = parts.parts.blobs.live();
  EXPECT_TRUE(residency.drop(slot));
  EXPECT_EQ(parts.lookup(5), Code::kObjectDropped);
  EXPECT_EQ(parts.parts.blobs.live(), blobs - 1);
  EXPECT_FALSE(residency.drop(slot));
}

}  // namespace
}  // namespace entrepot::testing
