// Adoption of a daemon's control memory by its successor, over real memfds, as after a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "fakes/fake_memory.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

using testing::numbered_id;
using testing::numbered_instance;

std::map<RegionKind, UniqueFd> keep(const ControlMemory& memory) {
  std::map<RegionKind, UniqueFd> fds;
  for (const RegionKind kind : kAllRegions)
    fds[kind] = os::duplicate(memory.region(kind).fd()).take();
  return fds;
}

ControlMemory create() {
  return ControlMemory::create(numbered_instance(1), {{RegionKind::kIndex, 4ULL << 14}}).take();
}

std::uint32_t seal(DirectoryWriter& directory, RecordArena& arena, std::uint64_t number) {
  std::uint32_t bytes = 0;
  const std::string tree = "tree of " + std::to_string(number);
  const std::uint64_t offset = arena.write({.tree = tree}, bytes).take();
  const std::uint32_t slot = directory.allocate().take();
  directory.publish_sealed(slot, {.id = numbered_id(number), .record_offset = offset, .record_bytes = bytes});
  return slot;
}

TEST(Adoption, SealedObjectsAreFoundAgain) {
  ControlMemory old = create();
  std::vector<std::uint32_t> slots;
  {
    DirectoryWriter directory(old);
    RecordArena arena(old);
    for (std::uint64_t i = 0; i < 5000; ++i)
      slots.push_back(seal(directory, arena, i));
  }
  const std::uint32_t incarnation = old.root().incarnation.load();
  ControlMemory memory = ControlMemory::adopt(keep(old)).take();
  EXPECT_EQ(memory.root().incarnation.load(), incarnation + 1);
  DirectoryWriter directory(memory);
  const DirectoryAdoption adoption = directory.adopt();
  ASSERT_EQ(adoption.sealed.size(), 5000U);
  EXPECT_TRUE(adoption.damaged.empty());
  EXPECT_EQ(directory.live(), 5000U);
  IndexWriter index(memory);
  ASSERT_TRUE(index.reset(static_cast<std::uint32_t>(adoption.sealed.size())).is_ok());
  RecordArena arena(memory);
  for (const std::uint32_t slot : adoption.sealed) {
    const Slot& entry = directory.at(slot);
    ASSERT_TRUE(arena.reserve(entry.record_offset, entry.record_bytes).is_ok());
    ASSERT_TRUE(arena.view(entry.record_offset, entry.record_bytes)->check_crc().is_ok());
    ASSERT_TRUE(index.insert(entry.id, slot).is_ok());
  }
  // A client that had mapped the memory keeps working with its old mappings.
  const ControlView view = ControlView::attach(old.client_fds().take(), numbered_instance(1)).take();
  const DirectoryReader reader(view);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::optional<SlotSnapshot> at = reader.find(numbered_id(i));
    ASSERT_TRUE(at.has_value()) << i;
    EXPECT_EQ(at->slot, slots[i]);
    EXPECT_EQ(read_record(view, reader.slot(at->slot))->tree(), "tree of " + std::to_string(i));
  }
}

TEST(Adoption, UnfinishedDeletingAndDamagedSlotsAreToldApart) {
  ControlMemory old = create();
  DirectoryWriter before(old);
  RecordArena arena(old);
  const std::uint32_t whole = seal(before, arena, 1);
  const std::uint32_t deleting = seal(before, arena, 2);
  const std::uint32_t damaged = seal(before, arena, 3);
  const std::uint32_t freed = seal(before, arena, 4);
  const std::uint32_t unsealed = before.allocate().take();
  const std::uint32_t taken = before.allocate().take();  // never published: its word is still free
  before.mark_deleting(deleting);
  before.free(freed);
  before.table().at(damaged).payload_bytes ^= 1;
  before.table().publish(unsealed, static_cast<std::uint8_t>(ObjectState::kUnsealed));

  ControlMemory memory = ControlMemory::adopt(keep(old)).take();
  DirectoryWriter directory(memory);
  const DirectoryAdoption adoption = directory.adopt();
  EXPECT_EQ(adoption.sealed, std::vector<std::uint32_t>{whole});
  EXPECT_EQ(adoption.deleting, std::vector<std::uint32_t>{deleting});
  EXPECT_EQ(adoption.damaged, std::vector<std::uint32_t>{damaged});
  EXPECT_EQ(directory.state(damaged), ObjectState::kLost);
  EXPECT_EQ(directory.state(unsealed), ObjectState::kFree);
  EXPECT_EQ(directory.live(), 3U);
  std::set<std::uint32_t> again;
  for (std::uint32_t i = 0; i < directory.size() - 3; ++i)
    again.insert(directory.allocate().take());
  EXPECT_EQ(again.size(), directory.size() - 3U);
  EXPECT_EQ(again.count(whole) + again.count(deleting) + again.count(damaged), 0U);
  EXPECT_EQ(again.count(freed) + again.count(unsealed) + again.count(taken), 3U);
  // A pin from an earlier generation must not match a later one.
  EXPECT_EQ(directory.next_generation(freed), 2U);
}

TEST(Adoption, EveryFieldOfASlotIsGuarded) {
  ControlMemory memory = create();
  DirectoryWriter directory(memory);
  const std::uint32_t slot = directory.allocate().take();
  directory.publish_sealed(slot, {.id = numbered_id(1), .session = 2, .record_offset = 64, .record_bytes = 64});
  Slot& entry = directory.table().at(slot);
  const std::vector<std::pair<std::size_t, std::size_t>> guarded = {
      {offsetof(Slot, id), sizeof(IdBytes)}, {offsetof(Slot, session), 4},       {offsetof(Slot, record_offset), 8},
      {offsetof(Slot, record_bytes), 4},     {offsetof(Slot, payload_bytes), 8}, {offsetof(Slot, sealed_unix_ns), 8},
  };
  auto* bytes = reinterpret_cast<std::uint8_t*>(&entry);
  for (const auto& [offset, size] : guarded) {
    for (std::size_t i = offset; i < offset + size; ++i) {
      bytes[i] ^= 0x10;
      EXPECT_NE(entry.crc, slot_crc(entry, directory.generation(slot))) << "byte " << i;
      bytes[i] ^= 0x10;
    }
  }
  EXPECT_EQ(entry.crc, slot_crc(entry, directory.generation(slot)));
  EXPECT_NE(entry.crc, slot_crc(entry, directory.generation(slot) + 1));
}

TEST(Adoption, AMissingOrForeignRegionIsRefused) {
  const ControlMemory memory = create();
  const ControlMemory two = ControlMemory::create(numbered_instance(2)).take();
  std::map<RegionKind, UniqueFd> fds = keep(memory);
  fds.erase(RegionKind::kNames);
  const Status missing = ControlMemory::adopt(std::move(fds)).status();
  EXPECT_EQ(missing.code(), Code::kCorruptData);
  EXPECT_NE(missing.message().find("names"), std::string::npos) << missing.message();
  fds = keep(memory);
  fds[RegionKind::kBlobs] = os::duplicate(two.region(RegionKind::kBlobs).fd()).take();
  EXPECT_EQ(ControlMemory::adopt(std::move(fds)).code(), Code::kInvalidReference);
  fds = keep(memory);
  std::swap(fds[RegionKind::kBlobs], fds[RegionKind::kSlots]);
  EXPECT_EQ(ControlMemory::adopt(std::move(fds)).code(), Code::kCorruptData);
}

TEST(Adoption, MarksBeyondTheMemoryAreRefused) {
  {
    const ControlMemory old = create();
    old.root().slot_high_water.store(kMaxSlots + 1);
    EXPECT_EQ(ControlMemory::adopt(keep(old)).code(), Code::kCorruptData);
  }
  {
    const ControlMemory old = create();
    old.root().record_high_water.store(4096);  // pages that were never allocated
    EXPECT_EQ(ControlMemory::adopt(keep(old)).code(), Code::kCorruptData);
  }
  {
    const ControlMemory old = create();
    old.region(RegionKind::kNames).marks().high_water.store(7);
    EXPECT_EQ(ControlMemory::adopt(keep(old)).code(), Code::kCorruptData);
  }
}

TEST(Adoption, ClientsGetNothingTheyCouldWrite) {
  const ControlMemory memory = create();
  for (const UniqueFd& fd : memory.client_fds().take())
    EXPECT_FALSE(os::is_writable(fd.get()));
  EXPECT_EQ(ControlView::attach(memory.client_fds().take(), numbered_instance(9)).code(), Code::kInvalidReference);
}

}  // namespace
}  // namespace entrepot
