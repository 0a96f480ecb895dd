// Object recovery alone: from control memory, by a second set of tables over it, and from a manifest.
#include "store/object/object_recovery.h"

#include "store/object/object_table.h"
#include "store/object_fixture.h"
#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

// One daemon's objects over the control memory.
struct Daemon {
  explicit Daemon(ControlMemory& memory)
      : f(memory),
        parts({memory, f.clock, f.sessions, f.sets, f.consumers, f.names, f.pool, f.records, f.pins}),
        objects(parts),
        recovery(parts) {}

  ObjectAdoption take_over() {
    static_cast<void>(f.sessions.adopt());
    static_cast<void>(f.pool.adopt_begin());
    const Result<ObjectAdoption> adopted = recovery.adopt();
    EXPECT_TRUE(adopted.is_ok()) << adopted.status().to_string();
    f.pool.adopt_end(parts.withheld.is_withholding());
    return adopted.is_ok() ? *adopted : ObjectAdoption{};
  }
  SealOutcome seal(SealSpec spec, std::uint64_t number) {
    spec.id = numbered_id(number);
    spec.session = f.sessions.handle(session);
    spec.tree = "tree";
    SealOutcome sealed = objects.seal(kClient, spec);
    EXPECT_TRUE(sealed.status.is_ok()) << sealed.status.to_string();
    return sealed;
  }
  std::uint32_t put(std::uint64_t number) {
    SealSpec spec;
    spec.blobs = {f.lease(100 * kKiB)};
    spec.buffers = {{kNewBlobBit, 0, 0, 100 * kKiB}};
    return seal(spec, number).slot;
  }
  std::uint32_t put_sharing(std::uint64_t number, std::uint32_t blob) {
    SealSpec spec;
    spec.buffers = {{blob, parts.blobs.generation(blob), 0, 100}};
    return seal(spec, number).slot;
  }
  [[nodiscard]] Code lookup(std::uint64_t number) const { return objects.lookup(numbered_id(number)).code; }

  ObjectFixture f;
  ObjectParts parts;
  ObjectTable objects;
  ObjectRecovery recovery;
  std::uint32_t session = 0;
};

struct RecoveryFromMemory : ::testing::Test {
  RecoveryFromMemory() {
    EXPECT_TRUE(first.recovery.adopt().is_ok());
    first.session = first.f.session("run");
  }

  ControlMemory memory = control_memory();
  Daemon first{memory};
};

TEST_F(RecoveryFromMemory, CountsEachReferenceAnew) {
  const std::uint32_t slot = first.put(1);
  const std::uint32_t blob = first.parts.catalog.blobs_of(slot).front();
  static_cast<void>(first.put_sharing(2, blob));
  Daemon next(memory);
  const ObjectAdoption adopted = next.take_over();
  EXPECT_EQ(adopted.adopted, 2U);
  EXPECT_EQ(adopted.lost, 0U);
  EXPECT_EQ(next.lookup(1), Code::kOk);
  EXPECT_EQ(next.parts.blobs.references(blob), 2U);
  EXPECT_EQ(next.f.pool.blob_bytes(), first.f.pool.blob_bytes());
  const std::vector<IdBytes> ids = {numbered_id(1), numbered_id(2)};
  static_cast<void>(next.objects.remove(ids));
  EXPECT_EQ(next.parts.blobs.live(), 0U);
  EXPECT_EQ(next.f.records.used_bytes(), 0U);
}

TEST_F(RecoveryFromMemory, ADamagedObjectIsLostAndItsNeighbourIsNot) {
  const std::uint32_t slot = first.put(1);
  static_cast<void>(first.put(2));
  const Slot& entry = first.parts.catalog.directory().at(slot);
  memory.region(RegionKind::kRecords).entries()[entry.record_offset + 60] ^= std::byte{1};
  Daemon next(memory);
  const ObjectAdoption adopted = next.take_over();
  EXPECT_EQ(adopted.adopted, 1U);
  EXPECT_EQ(adopted.lost, 1U);
  EXPECT_EQ(next.lookup(1), Code::kObjectLost);
  EXPECT_EQ(next.lookup(2), Code::kOk);
  EXPECT_EQ(next.parts.blobs.live(), 1U) << "nothing refers to the other one's";
}

TEST_F(RecoveryFromMemory, AnObjectThatWasBeingDeletedWaitsForItsReaders) {
  const std::uint32_t slot = first.put(1);
  Reader reader(first.f.pins);
  reader.pin(first.parts.catalog.target(slot));
  const IdBytes id = numbered_id(1);
  static_cast<void>(first.objects.remove(std::span(&id, 1)));
  Daemon next(memory);
  Reader same(next.f.pins);
  same.pin(first.parts.catalog.target(slot));
  const ObjectAdoption adopted = next.take_over();
  EXPECT_EQ(adopted.deferred, 1U);
  EXPECT_EQ(next.parts.blobs.live(), 1U);
  same.unpin();
  EXPECT_TRUE(next.objects.rescan());
  EXPECT_EQ(next.parts.blobs.live(), 0U);
}

// What an earlier store left on disk, in a store that has nothing.
struct RecoveryFromManifest : ::testing::Test {
  RecoveryFromManifest() {
    const std::uint32_t slot = before.put(1);
    const std::uint32_t sharing = before.put_sharing(2, slot);
    before.writer.write(slot);
    for (const SpillCompletion& done : before.end_io())
      static_cast<void>(before.writer.complete(done));
    before.parts.manifest.remember(slot);
    before.parts.manifest.remember(sharing);
    after.spill.copies = before.spill.copies;
    for (auto& [location, copy] : after.spill.copies)
      copy.adopted = false;
    session = after.sessions.open("scope", "next", nullptr, 1000).take();
  }
  [[nodiscard]] SpilledObject listed(std::uint64_t number) const {
    return before.spill.manifest.at(numbered_id(number));
  }

  PagingParts before;
  PagingParts after;
  ObjectRecovery recovery{after.parts};
  ObjectRecovery::RecoveredBlobs blobs;
  std::uint32_t session = 0;
};

TEST_F(RecoveryFromManifest, ObjectsThatSharedACopyShareABlob) {
  for (const std::uint64_t number : {1, 2}) {
    const Status adopted = recovery.adopt_spilled(listed(number), session, blobs);
    EXPECT_TRUE(adopted.is_ok()) << adopted.to_string();
    EXPECT_EQ(after.lookup(number), Code::kOk);
  }
  EXPECT_EQ(after.parts.blobs.live(), 1U);
  const std::uint32_t blob = blobs.begin()->second.blob;
  EXPECT_EQ(after.parts.blobs.references(blob), 2U) << "of the records alone";
  EXPECT_EQ(recovery.adopt_spilled(listed(1), session, blobs).code(), Code::kObjectExists);
  EXPECT_EQ(after.parts.blobs.references(blob), 2U);
  after.remove(1);
  after.remove(2);
  EXPECT_EQ(after.parts.blobs.live(), 0U);
  EXPECT_EQ(after.spill.copies.size(), 0U);
}

TEST_F(RecoveryFromManifest, WhatLacksACopyOrContradictsItselfLeavesNothing) {
  SpilledObject contradicting = listed(1);
  contradicting.blobs.push_back(contradicting.blobs.front());
  EXPECT_EQ(recovery.adopt_spilled(contradicting, session, blobs).code(), Code::kCorruptData);
  SpilledObject damaged = listed(1);
  damaged.record.back() = static_cast<char>(damaged.record.back() ^ 1);
  EXPECT_FALSE(recovery.adopt_spilled(damaged, session, blobs).is_ok());
  after.spill.copies.clear();
  EXPECT_FALSE(recovery.adopt_spilled(listed(1), session, blobs).is_ok());
  EXPECT_EQ(after.parts.blobs.live(), 0U);
  EXPECT_EQ(after.records.used_bytes(), 0U);
  EXPECT_EQ(after.lookup(1), Code::kObjectNotFound);
}

}  // namespace
}  // namespace entrepot::testing
