// The table of the arena: who holds what, what goes first, and how much.
#include "plasma/object_table.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace entrepot::plasma {
namespace {

constexpr ClientKey kOne = 1;
constexpr ClientKey kTwo = 2;

IdBytes id_of(std::uint8_t number) { return {number}; }

class Table : public ::testing::Test {
 protected:
  void put(std::uint8_t number, std::uint64_t bytes, ClientKey creator = kOne) {
    Object object;
    object.data_bytes = bytes;
    object.creator = creator;
    Object& added = table.add(id_of(number), std::move(object));
    table.hold(added, creator);
    table.seal(id_of(number), added);
    ASSERT_TRUE(table.release(id_of(number), added, creator));
  }
  void hold(std::uint8_t number, ClientKey client) { table.hold(*table.find(id_of(number)), client); }

  ObjectTable table{1000};
};

TEST_F(Table, TheLeastRecentlyUsedGoesFirst) {
  put(1, 100);
  put(2, 100);
  put(3, 100);
  table.refresh(id_of(1));
  EXPECT_EQ(table.oldest(1), std::vector{id_of(2)});
  EXPECT_EQ(table.oldest(150), (std::vector{id_of(2), id_of(3)}));
  EXPECT_EQ(table.oldest(1'000'000), (std::vector{id_of(2), id_of(3), id_of(1)}));
}

TEST_F(Table, EmptyOnesGoOnTheWay) {
  put(1, 0);
  put(2, 0);
  put(3, 7);
  EXPECT_EQ(table.oldest(1).size(), 3U);
}

TEST_F(Table, WhatIsHeldOrUnsealedStays) {
  put(1, 100);
  hold(1, kTwo);
  Object unsealed;
  unsealed.data_bytes = 50;
  unsealed.creator = kOne;
  table.hold(table.add(id_of(2), std::move(unsealed)), kOne);
  EXPECT_TRUE(table.oldest(1).empty());
  EXPECT_FALSE(table.make_room(900, kTwo, true).fits);
  EXPECT_TRUE(table.make_room(850, kTwo, true).fits);
  EXPECT_EQ(table.used_bytes(), 150U);
}

TEST_F(Table, AReleaseOfWhatIsNotHeldIsRefused) {
  put(1, 100);
  EXPECT_FALSE(table.release(id_of(1), *table.find(id_of(1)), kTwo));
}

TEST_F(Table, AtLeastAFifthGoesAtATime) {
  for (std::uint8_t number = 0; number < 10; ++number)
    put(number, 100);
  const ObjectTable::Room room = table.make_room(1, kOne, true);
  EXPECT_TRUE(room.fits);
  EXPECT_EQ(room.victims, (std::vector{id_of(0), id_of(1)}));
  EXPECT_FALSE(table.make_room(1, kOne, false).fits);
  EXPECT_FALSE(table.make_room(1001, kOne, true).fits);
}

TEST_F(Table, AQuotaIsPaidWithItsClientsOwnObjects) {
  ASSERT_TRUE(table.set_quota(kTwo, 200));
  EXPECT_FALSE(table.set_quota(kTwo, 100));  // once
  EXPECT_FALSE(table.set_quota(3, 600));     // leaves too little for the others
  put(1, 100, kOne);
  put(2, 150, kTwo);
  EXPECT_FALSE(table.make_room(201, kTwo, true).fits);
  const ObjectTable::Room room = table.make_room(100, kTwo, true);
  EXPECT_TRUE(room.fits);
  EXPECT_EQ(room.victims, std::vector{id_of(2)});
  EXPECT_FALSE(table.make_room(100, kTwo, false).fits);
  table.forget_client(kTwo);
  EXPECT_TRUE(table.make_room(100, kTwo, false).fits);
}

TEST_F(Table, SizesThatOverflowDoNotFit) {
  put(1, 100);
  EXPECT_FALSE(table.make_room(UINT64_MAX, kOne, true).fits);
  EXPECT_FALSE(table.make_room(UINT64_MAX - 50, kOne, true).fits);
}

}  // namespace
}  // namespace entrepot::plasma
