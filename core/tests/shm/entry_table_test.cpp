#include "shm/entry_table.h"

#include <gtest/gtest.h>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

struct Fixture {
  explicit Fixture(std::uint64_t capacity = 4096)
      : region(Region::create_private(RegionKind::kBlobs, testing::numbered_instance(1), capacity).take()),
        table(region, region.marks().high_water) {}
  Region region;
  EntryTable<Blob> table;
};

constexpr std::uint8_t kSealed = 2;

TEST(EntryTable, GenerationsBeginAtOneAndGrowWithEveryLife) {
  Fixture f;
  const std::uint32_t index = f.table.allocate().take();
  EXPECT_EQ(f.table.next_generation(index), 1U);
  for (std::uint32_t life = 1; life <= 5; ++life) {
    const std::uint64_t word = f.table.publish(index, kSealed, 1, 2);
    EXPECT_EQ(Word::generation(word), life);
    EXPECT_EQ(Word::state(word), kSealed);
    EXPECT_EQ(Word::kind(word), 1U);
    EXPECT_EQ(Word::flags(word), 2U);
    EXPECT_TRUE(f.table.is_live(index, life));
    EXPECT_FALSE(f.table.is_live(index, life - 1));
    f.table.free(index);
    EXPECT_FALSE(f.table.is_live(index, life));
    EXPECT_EQ(f.table.allocate().take(), index);
  }
}

TEST(EntryTable, StateChangesKeepGenerationAndFlags) {
  Fixture f;
  const std::uint32_t index = f.table.allocate().take();
  const std::uint64_t word = f.table.publish(index, kSealed, 3, 9);
  EXPECT_EQ(f.table.set_state(index, 7), word);
  EXPECT_EQ(f.table.word(index), Word::make(1, 7, 3, 9));
}

TEST(EntryTable, AnAbandonedEntryComesBackInTheSameLife) {
  Fixture f;
  const std::uint32_t index = f.table.allocate().take();
  EXPECT_EQ(f.table.live(), 1U);
  f.table.abandon(index);
  EXPECT_EQ(f.table.live(), 0U);
  EXPECT_EQ(f.table.allocate().take(), index);
  EXPECT_EQ(f.table.next_generation(index), 1U);
}

TEST(EntryTable, FullIsStoreFullWithTheNumberAndRecovers) {
  Fixture f(100);
  for (std::uint32_t i = 0; i < 100; ++i)
    EXPECT_EQ(f.table.allocate().take(), i);
  const Status status = f.table.allocate().status();
  EXPECT_EQ(status.code(), Code::kStoreFull);
  EXPECT_NE(status.message().find("100 blobs"), std::string::npos) << status.message();
  f.table.publish(40, kSealed);
  f.table.free(40);
  EXPECT_EQ(f.table.allocate().take(), 40U);
}

TEST(EntryTable, ReturnsThePagesOfItsFreeEnd) {
  Fixture f;
  constexpr std::uint32_t kStep = (64U << 10) / sizeof(Blob);
  for (std::uint32_t i = 0; i < 4 * kStep; ++i)
    f.table.publish(f.table.allocate().take(), kSealed);
  EXPECT_EQ(f.table.trim(), 0U);
  const std::uint64_t before = f.region.resident_bytes();
  for (std::uint32_t i = 0; i < 4 * kStep; ++i) {
    if (i != kStep + 5) f.table.free(i);
  }
  EXPECT_EQ(f.table.trim(), 2 * (64U << 10));
  EXPECT_EQ(f.region.resident_bytes(), before - 2 * (64U << 10));
  EXPECT_EQ(f.table.size(), 2 * kStep);
  EXPECT_EQ(f.region.marks().high_water.load(), 2 * kStep);
  EXPECT_EQ(f.table.trim(), 0U) << "nothing was freed since";
  EXPECT_TRUE(f.table.is_live(kStep + 5, 1));
  EXPECT_FALSE(f.table.is_live(3 * kStep, 1));
  for (std::uint32_t i = 0; i < 4 * kStep - 1; ++i) {  // low ones first, and then as in a new table
    const std::uint32_t index = f.table.allocate().take();
    EXPECT_EQ(index, i < kStep + 5 ? i : i + 1);
    f.table.publish(index, kSealed);
  }
  EXPECT_EQ(f.table.size(), 4 * kStep);
}

TEST(EntryTable, TheLastGenerationRetiresTheEntry) {
  Fixture f;
  const std::uint32_t index = f.table.allocate().take();
  f.table.set_next_generation(index, kLastGeneration - 1);
  f.table.publish(index, kSealed);
  f.table.free(index);
  EXPECT_EQ(f.table.retired(), 0U);
  ASSERT_EQ(f.table.allocate().take(), index);  // one generation is left
  EXPECT_EQ(Word::generation(f.table.publish(index, kSealed)), kLastGeneration);
  f.table.free(index);
  EXPECT_EQ(f.table.retired(), 1U);
  EXPECT_EQ(f.table.live(), 0U);
  EXPECT_FALSE(f.table.is_live(index, kLastGeneration));
  for (int i = 0; i < 1000; ++i)
    EXPECT_NE(f.table.allocate().take(), index);
}

TEST(EntryTable, AdoptionKeepsRetiredEntriesRetired) {
  Fixture f;
  const std::uint32_t retired = f.table.allocate().take();
  const std::uint32_t last_life = f.table.allocate().take();
  const std::uint32_t live = f.table.allocate().take();
  for (const std::uint32_t index : {retired, last_life}) {
    f.table.set_next_generation(index, index == retired ? kLastGeneration : kLastGeneration - 1);
    f.table.publish(index, kSealed);
    f.table.free(index);
  }
  f.table.publish(live, kSealed);

  EntryTable<Blob> adopted(f.region, f.region.marks().high_water);
  std::vector<std::uint32_t> visited;
  adopted.adopt([&](std::uint32_t index, const Blob&) {
    visited.push_back(index);
    return true;
  });
  EXPECT_EQ(visited, std::vector<std::uint32_t>{live});
  EXPECT_EQ(adopted.retired(), 1U);
  EXPECT_EQ(adopted.live(), 1U);
  EXPECT_EQ(adopted.allocate().take(), last_life);
  EXPECT_EQ(adopted.next_generation(last_life), kLastGeneration);
  for (std::uint32_t i = 0; i < 1000; ++i)
    EXPECT_NE(adopted.allocate().take(), retired);
}

TEST(EntryTable, AdoptionFreesWhatTheVisitorRefuses) {
  Fixture f;
  for (int i = 0; i < 10; ++i)
    f.table.publish(f.table.allocate().take(), kSealed);
  EntryTable<Blob> adopted(f.region, f.region.marks().high_water);
  adopted.adopt([](std::uint32_t index, const Blob&) { return index % 2 == 0; });
  EXPECT_EQ(adopted.live(), 5U);
  EXPECT_TRUE(adopted.is_live(4, 1));
  EXPECT_FALSE(adopted.is_live(5, 1));
  EXPECT_EQ(adopted.next_generation(5), 2U);
}

}  // namespace
}  // namespace entrepot
