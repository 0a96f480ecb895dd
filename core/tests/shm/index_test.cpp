#include "shm/index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

using testing::FakeStore;
using testing::numbered_id;

TEST(Index, FindsWhatWasInserted) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  EXPECT_EQ(store.index.find(numbered_id(1)), slot);
  EXPECT_EQ(store.reader.find(numbered_id(1))->slot, slot);
  EXPECT_FALSE(store.reader.find(numbered_id(2)).has_value());
}

TEST(Index, RemoveForgetsAndInsertingAgainWorks) {
  FakeStore store;
  const std::uint32_t slot = store.seal(numbered_id(1));
  EXPECT_FALSE(store.index.remove(numbered_id(1), slot + 1));
  store.unlink(numbered_id(1), slot);
  EXPECT_FALSE(store.index.remove(numbered_id(1), slot));
  EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value());
  store.directory.free(slot);
  const std::uint32_t again = store.seal(numbered_id(1));
  EXPECT_EQ(store.reader.find(numbered_id(1))->slot, again);
}

TEST(Index, ReplacePointsAtTheNewSlot) {
  FakeStore store;
  const std::uint32_t old_slot = store.seal(numbered_id(1));
  const std::uint32_t new_slot = store.replace(numbered_id(1), old_slot);
  EXPECT_EQ(store.reader.find(numbered_id(1))->slot, new_slot);
  EXPECT_EQ(store.index.live(), 1U);
}

TEST(Index, AReaderThatMeetsAReplacementHalfWayFindsTheNewSlot) {
  FakeStore store;
  const IdBytes id = numbered_id(1);
  const std::uint32_t old_slot = store.seal(id);
  const IndexReader reader(store.view);
  std::uint32_t new_slot = old_slot;
  const auto match = reader.probe(hash_id(id), [&](std::uint32_t slot) {
    // The daemon replaces the object after the entry was read and before the reader looks at the slot.
    if (slot == old_slot && new_slot == old_slot) new_slot = store.replace(id, old_slot);
    return slot == new_slot;
  });
  EXPECT_NE(new_slot, old_slot);
  EXPECT_EQ(match, new_slot);
}

TEST(Index, AReaderThatProbesATableThatIsReplacedLooksIntoTheNewOne) {
  FakeStore store;
  const IdBytes id = numbered_id(1);
  const std::uint32_t slot = store.seal(id);
  const IndexReader reader(store.view);
  int looks = 0;
  const auto match = reader.probe(hash_id(id), [&](std::uint32_t) {
    if (++looks == 1) {
      EXPECT_TRUE(store.index.rebuild(store.index.log2() + 1).is_ok());  // clears the table that is being read
      return false;
    }
    return true;
  });
  EXPECT_EQ(match, slot);
  EXPECT_EQ(looks, 2);
}

TEST(Index, GrowsAndKeepsEverything) {
  FakeStore store;
  const std::uint32_t before = store.index.log2();
  for (std::uint64_t i = 0; i < 5000; ++i)
    store.seal(numbered_id(i));
  EXPECT_GT(store.index.log2(), before);
  for (std::uint64_t i = 0; i < 5000; ++i)
    ASSERT_TRUE(store.reader.find(numbered_id(i)).has_value()) << i;
  for (std::uint64_t i = 5000; i < 6000; ++i)
    ASSERT_FALSE(store.reader.find(numbered_id(i)).has_value()) << i;
}

TEST(Index, FullAtTheLargestTableIsStoreFull) {
  FakeStore store({{RegionKind::kIndex, 4ULL << kIndexMinLog2}});
  Status status;
  std::uint32_t inserted = 0;
  while (status.is_ok() && inserted < 2000) {
    const std::uint32_t slot = store.directory.allocate().take();
    store.directory.publish_sealed(slot, {.id = numbered_id(inserted)});
    status = store.index.insert(numbered_id(inserted), slot);
    if (status.is_ok()) ++inserted;
  }
  EXPECT_EQ(status.code(), Code::kStoreFull);
  EXPECT_GT(inserted, 900U);  // slower, but usable to the end
  for (std::uint32_t i = 0; i < inserted; ++i)
    ASSERT_TRUE(store.reader.find(numbered_id(i)).has_value()) << i;
  EXPECT_FALSE(store.reader.find(numbered_id(5000)).has_value());
}

TEST(Index, ReturnsWhatItNoLongerNeeds) {
  FakeStore store;
  std::map<std::uint64_t, std::uint32_t> live;
  for (std::uint64_t i = 0; i < 4000; ++i)
    live[i] = store.seal(numbered_id(i));
  const std::uint32_t before = store.index.log2();
  EXPECT_EQ(store.index.trim(), 0U);
  for (std::uint64_t i = 0; i < 3990; ++i) {
    store.unlink(numbered_id(i), live[i]);
    store.directory.free(live[i]);
  }
  EXPECT_EQ(store.index.trim(), ((1ULL << before) - (1ULL << kIndexMinLog2)) * 8);
  EXPECT_EQ(store.index.log2(), kIndexMinLog2);
  for (std::uint64_t i = 3990; i < 4000; ++i)
    EXPECT_TRUE(store.reader.find(numbered_id(i)).has_value()) << i;
  EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value());
}

TEST(Index, ChurnLeavesFewTombstones) {
  FakeStore store;
  std::map<std::uint64_t, std::uint32_t> live;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    live[i] = store.seal(numbered_id(i));
    if (live.size() > 100) {
      const auto [number, slot] = *live.begin();
      store.unlink(numbered_id(number), slot);
      store.directory.free(slot);
      live.erase(live.begin());
    }
  }
  EXPECT_EQ(store.index.log2(), kIndexMinLog2);
  EXPECT_LE(store.index.live() + store.index.tombstones(), (1U << kIndexMinLog2) * 5 / 8 + 1);
}

TEST(Index, AnEntryBeyondTheDirectoryIsNotFollowed) {
  FakeStore store;
  store.seal(numbered_id(1));
  const IdBytes id = numbered_id(2);
  const std::uint64_t word = store.memory.root().index_word.load();
  auto* table = store.memory.region(RegionKind::kIndex).as<std::atomic<std::uint64_t>>() +
                index_first_entry(word, index_max_log2(store.memory.region(RegionKind::kIndex)));
  const std::uint64_t hash = hash_id(id);
  table[hash & ((1ULL << IndexWord::log2(word)) - 1)].store(
      IndexEntry::make(0x7fff'0000U, static_cast<std::uint32_t>(hash >> 32)));
  EXPECT_FALSE(store.reader.find(id).has_value());
}

TEST(Index, ADamagedIndexWordIsAMiss) {
  FakeStore store;
  store.seal(numbered_id(1));
  for (const std::uint64_t word :
       std::initializer_list<std::uint64_t>{0, 1, 63, 0xff, IndexWord::make(kIndexMaxLog2 + 1, 1, 1)}) {
    store.memory.root().index_word.store(word);
    EXPECT_FALSE(store.reader.find(numbered_id(1)).has_value()) << word;
  }
}

// IDs whose hashes share their low bits form one long run of entries.
TEST(Index, CollidingIdsAreToldApart) {
  FakeStore store;
  std::vector<IdBytes> ids;
  for (std::uint64_t i = 0; ids.size() < 40; ++i) {
    if ((hash_id(numbered_id(i)) & 0x1f) == 7) ids.push_back(numbered_id(i));
  }
  std::vector<std::uint32_t> slots;
  for (const IdBytes& id : ids)
    slots.push_back(store.seal(id));
  for (std::size_t i = 0; i < ids.size(); i += 2)
    store.unlink(ids[i], slots[i]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(store.reader.find(ids[i]).has_value(), i % 2 == 1);
  }
}

// Entry-by-entry count of live entries and tombstones in the table.
std::pair<std::uint64_t, std::uint64_t> live_and_tombstones(const FakeStore& store) {
  const Region& region = store.memory.region(RegionKind::kIndex);
  const std::uint64_t word = store.memory.root().index_word.load();
  const auto* table = region.as<std::atomic<std::uint64_t>>() + index_first_entry(word, index_max_log2(region));
  std::pair<std::uint64_t, std::uint64_t> counts;
  for (std::uint64_t i = 0; i < (1ULL << IndexWord::log2(word)); ++i) {
    const std::uint32_t slot_plus_one = IndexEntry::slot_plus_one(table[i].load());
    if (slot_plus_one == 0) continue;
    ++(slot_plus_one == IndexEntry::kTombstone ? counts.second : counts.first);
  }
  return counts;
}

TEST(Index, AgreesWithAMapInRandomHistories) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    FakeStore store;
    std::map<std::uint64_t, std::uint32_t> model;
    const std::uint64_t universe = seed % 2 == 0 ? 300 : 3000;
    for (int step = 0; step < 4000; ++step) {
      const std::uint64_t number = random() % universe;
      const IdBytes id = numbered_id(number);
      const auto entry = model.find(number);
      switch (random() % 12) {
        case 0:
          ASSERT_TRUE(
              store.index.rebuild(store.index.log2() + (random() % 2 == 0 && store.index.log2() < 13 ? 1 : 0)).is_ok());
          break;
        case 1:
        case 2:
        case 3:
        case 4:
          if (entry != model.end()) {
            store.unlink(id, entry->second);
            store.directory.free(entry->second);
            model.erase(entry);
          } else {
            ASSERT_FALSE(store.index.remove(id, 0));
          }
          break;
        case 5:
          if (entry != model.end()) {
            const std::uint32_t old_slot = entry->second;
            entry->second = store.replace(id, old_slot);
            store.directory.free(old_slot);
          }
          break;
        default:
          if (entry == model.end()) model[number] = store.seal(id);
      }
      ASSERT_EQ(store.index.live(), model.size());
      if (step % 16 == 0) {
        ASSERT_EQ(live_and_tombstones(store), (std::pair{store.index.live(), store.index.tombstones()}));
      }
      const std::uint64_t probe = random() % universe;
      const auto expected = model.find(probe);
      const std::optional<SlotSnapshot> snapshot = store.reader.find(numbered_id(probe));
      ASSERT_EQ(snapshot.has_value(), expected != model.end()) << probe;
      if (snapshot) {
        ASSERT_EQ(snapshot->slot, expected->second);
        ASSERT_TRUE(store.reader.recheck(*snapshot));
      }
    }
    for (std::uint64_t number = 0; number < universe; ++number) {
      ASSERT_EQ(store.reader.find(numbered_id(number)).has_value(), model.count(number) == 1) << number;
    }
  }
}

}  // namespace
}  // namespace entrepot
