#include "shm/pins.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "fakes/fake_memory.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

PinTable attach(const UniqueFd& fd) { return PinTable::attach(os::duplicate(fd.get()).take()).take(); }

TEST(Pins, AScanSeesThePinsOfAllClients) {
  const UniqueFd first_fd = create_pin_table(64).take();
  const UniqueFd second_fd = create_pin_table(64).take();
  PinTable first = attach(first_fd);
  PinTable second = attach(second_fd);
  PinScanner scanner;
  ASSERT_TRUE(scanner.add(1, first_fd.get(), 64).is_ok());
  ASSERT_TRUE(scanner.add(2, second_fd.get(), 64).is_ok());
  const std::uint32_t a = first.pin(10, 1);
  const std::uint32_t b = second.pin(10, 1);
  const std::uint32_t c = second.pin(11, 5);
  ASSERT_NE(a, PinTable::kNoPosition);
  const std::vector<PinTarget> victims = {{10, 1}, {10, 2}, {11, 5}, {11, 4}, {12, 1}, {10, 1}};
  EXPECT_EQ(scanner.scan(victims), (std::vector<std::uint8_t>{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(scanner.pinned_by({10, 1}).size(), 2U);
  EXPECT_EQ(scanner.pinned_by({11, 5})[0].client, 2U);
  EXPECT_EQ(scanner.count(2), 2U);
  first.unpin(a);
  EXPECT_EQ(scanner.scan(victims)[0], 1);
  second.unpin(b);
  EXPECT_EQ(scanner.scan(victims), (std::vector<std::uint8_t>{0, 0, 1, 0, 0, 0}));
  scanner.remove(2);
  EXPECT_EQ(scanner.scan(victims)[2], 0);
  EXPECT_FALSE(scanner.has(2));
  second.unpin(c);
}

TEST(Pins, SlotZeroAndTheLastGenerationCanBePinned) {
  PinTable table = PinTable::create_private(4).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  ASSERT_NE(table.pin(0, 1), PinTable::kNoPosition);
  ASSERT_NE(table.pin(kMaxSlots - 1, 0xffff'ffffU), PinTable::kNoPosition);
  EXPECT_EQ(scanner.scan(std::vector<PinTarget>{{0, 1}, {kMaxSlots - 1, 0xffff'ffffU}, {0, 0}}),
            (std::vector<std::uint8_t>{1, 1, 0}));
}

TEST(Pins, TheDaemonWritesAPinOnlyInAReservedPosition) {
  PinTable table = PinTable::create_private(16).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  const PinTarget target{3, 5};
  EXPECT_FALSE(scanner.can_place(1, 0));  // nothing is reserved
  scanner.place(1, 0, target);
  EXPECT_EQ(table.in_use(), 0U);
  const std::uint32_t position = table.reserve();
  EXPECT_TRUE(scanner.can_place(1, position));
  EXPECT_FALSE(scanner.can_place(1, position + 1));
  EXPECT_FALSE(scanner.can_place(2, position));
  EXPECT_EQ(scanner.scan(std::vector{target}).front(), 0);
  scanner.place(1, position, target);
  EXPECT_EQ(scanner.scan(std::vector{target}).front(), 1);
  EXPECT_EQ(table.pin_at(position), PinWord::make(3, 5));
  table.unpin(position);
  EXPECT_EQ(scanner.scan(std::vector{target}).front(), 0);
  EXPECT_EQ(table.reserve(), position);
}

TEST(Pins, AFullTableSaysSoAndRecovers) {
  PinTable table = PinTable::create_private(3).take();
  std::set<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < 3; ++i)
    positions.insert(table.pin(i, 1));
  EXPECT_EQ(positions.size(), 3U);
  EXPECT_EQ(table.pin(3, 1), PinTable::kNoPosition);
  EXPECT_EQ(table.full_error().code(), Code::kStoreFull);
  EXPECT_NE(table.full_error().message().find("3"), std::string::npos);
  EXPECT_EQ(table.in_use(), 3U);
  table.unpin(*positions.begin());
  EXPECT_EQ(table.pin(3, 1), *positions.begin());
}

TEST(Pins, PositionsAreReusedBeforeTheMarkRises) {
  PinTable table = PinTable::create_private(1000).take();
  for (std::uint32_t i = 0; i < 10'000; ++i)
    table.unpin(table.pin(i, 1));
  const auto* header = reinterpret_cast<const PinTableHeader*>(table.memory());
  EXPECT_EQ(header->high_water.load(), 1U);
}

TEST(Pins, LiesInAClientsTableAreBounded) {
  const UniqueFd fd = create_pin_table(16).take();
  PinTable table = attach(fd);
  PinScanner scanner;
  ASSERT_TRUE(scanner.add(1, fd.get(), 16).is_ok());
  auto* header = reinterpret_cast<PinTableHeader*>(table.memory());
  header->high_water.store(0xffff'ffffU);
  header->capacity = 0xffff'ffffU;
  header->magic = 0;
  std::memset(table.memory() + pin_table_bytes(0), 0xff, 16 * 8);
  EXPECT_EQ(scanner.scan(std::vector<PinTarget>{{1, 1}})[0], 0);
  EXPECT_EQ(scanner.count(1), 16U);
  // An invalid slot number is passed through: it is only a number, never used as an address.
  scanner.for_each([](std::uint32_t, const PinTarget& target) { EXPECT_EQ(target.slot, 0xffff'fffeU); });
}

TEST(Pins, TheScannerRefusesWhatIsNoTable) {
  PinScanner scanner;
  const UniqueFd small = os::create_memfd("small", 4096).take();
  EXPECT_EQ(scanner.add(1, small.get(), kMaxPinsPerClient).code(), Code::kInvalidArgument);
  EXPECT_EQ(scanner.add(1, small.get(), 0xffff'ffffU).code(), Code::kInvalidArgument);
  EXPECT_EQ(scanner.add(1, 0, 16).code(), Code::kInvalidArgument);
  const UniqueFd fd = create_pin_table(16).take();
  EXPECT_TRUE(scanner.add(1, fd.get(), 16).is_ok());
  EXPECT_EQ(scanner.add(1, fd.get(), 16).code(), Code::kInternal);
}

TEST(Pins, AttachChecksTheHeader) {
  EXPECT_EQ(create_pin_table(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(create_pin_table(kMaxPinsPerClient + 1).code(), Code::kInvalidArgument);
  const UniqueFd fd = create_pin_table(16).take();
  const os::Mapping mapping = os::Mapping::map(fd.get(), 0, pin_table_bytes(16), os::Access::kReadWrite).take();
  auto* header = reinterpret_cast<PinTableHeader*>(mapping.data());
  const auto code = [&] { return PinTable::attach(os::duplicate(fd.get()).take()).code(); };
  EXPECT_EQ(code(), Code::kOk);
  header->capacity = 17;
  EXPECT_EQ(code(), Code::kInvalidArgument);  // truncated
  header->capacity = 16;
  header->layout_version = kLayoutVersion + 1;
  EXPECT_EQ(code(), Code::kVersionMismatch);
  header->magic = 1;
  EXPECT_EQ(code(), Code::kCorruptData);
}

TEST(Pins, AForkedTableHasThePinsOfValuesAtTheSamePositions) {
  PinTable parent = PinTable::create_private(64).take();
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < 10; ++i)
    positions.push_back(parent.pin(i, i + 1));
  parent.unpin(positions[3]);
  std::vector<std::uint32_t> held = {positions[0], positions[1], positions[9]};  // the others belong to other threads
  PinTable child = PinTable::create_private(64).take();
  ASSERT_TRUE(child.copy_from(parent, held).is_ok());
  EXPECT_EQ(child.in_use(), 3U);
  for (const std::uint32_t position : held)
    EXPECT_EQ(child.pin_at(position), parent.pin_at(position));
  std::set<std::uint32_t> fresh;
  for (std::uint32_t i = 0; i < 8; ++i)
    fresh.insert(child.pin(77 + i, 1));
  EXPECT_EQ(fresh.size(), 8U);
  for (const std::uint32_t position : held)
    EXPECT_FALSE(fresh.contains(position));
  EXPECT_TRUE(fresh.contains(positions[3]) && fresh.contains(10U));
  PinTable small = PinTable::create_private(5).take();
  EXPECT_EQ(small.copy_from(parent, held).code(), Code::kInvalidArgument);
}

std::uint64_t memory_of(const UniqueFd& fd) { return os::resident_bytes(fd.get()).take(); }

TEST(Pins, ATableHasMemoryForItsFirstPinsAndGrowsOnRequest) {
  const UniqueFd fd = create_pin_table(kMaxPinsPerClient).take();
  EXPECT_EQ(memory_of(fd), kPinTableFirstBytes);
  PinTable table = attach(fd);
  PinScanner scanner;
  ASSERT_TRUE(scanner.add(1, fd.get(), kMaxPinsPerClient).is_ok());
  const std::uint32_t first = table.reserved_pins();
  EXPECT_EQ(scanner.reserved_pins(1), first);
  EXPECT_GE(first, 1000U);
  for (std::uint32_t i = 0; i < first; ++i)
    ASSERT_NE(table.pin(i, 1), PinTable::kNoPosition);
  EXPECT_EQ(table.pin(first, 1), PinTable::kNoPosition);
  const std::uint32_t grown = grow_pin_table(fd.get(), kMaxPinsPerClient, first + 1).take();
  EXPECT_GT(grown, first);
  EXPECT_EQ(memory_of(fd), kPinTableFirstBytes + os::page_bytes());
  table.grow_to(grown);
  ASSERT_NE(table.pin(first, 1), PinTable::kNoPosition);
  const std::vector<PinTarget> victim = {{first, 1}};
  EXPECT_EQ(scanner.scan(victim)[0], 0) << "the daemon looks at what it gave alone";
  scanner.grow(1, grown);
  EXPECT_EQ(scanner.scan(victim)[0], 1);
  EXPECT_EQ(memory_of(fd), kPinTableFirstBytes + os::page_bytes()) << "a scan fills no hole";
  // The next daemon finds the table at its grown size.
  PinScanner next;
  ASSERT_TRUE(next.add(1, fd.get(), kMaxPinsPerClient).is_ok());
  EXPECT_EQ(next.reserved_pins(1), grown);
  EXPECT_EQ(next.scan(victim)[0], 1);
  EXPECT_EQ(grow_pin_table(fd.get(), kMaxPinsPerClient, kMaxPinsPerClient).take(), kMaxPinsPerClient);
}

TEST(Pins, AMarkBeyondWhatATableHasReadsNoHole) {
  const UniqueFd fd = create_pin_table(kMaxPinsPerClient).take();
  PinTable table = attach(fd);
  PinScanner scanner;
  ASSERT_TRUE(scanner.add(1, fd.get(), kMaxPinsPerClient).is_ok());
  reinterpret_cast<PinTableHeader*>(table.memory())->high_water.store(0xffff'ffffU);
  EXPECT_EQ(scanner.count(1), 0U);
  EXPECT_EQ(memory_of(fd), kPinTableFirstBytes);
}

TEST(Pins, WhoseTableCannotBeReadMayPinAnything) {
  const UniqueFd fd = create_pin_table(16).take();
  PinTable table = attach(fd);
  ASSERT_NE(table.pin(1, 1), PinTable::kNoPosition);
  PinScanner scanner;
  const std::vector<PinTarget> victims = {{1, 1}, {2, 1}};
  scanner.add_unreadable(7);
  EXPECT_EQ(scanner.scan(victims), (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(scanner.pinned_by({2, 1})[0].client, 7U);
  ASSERT_TRUE(scanner.add(7, fd.get(), 16).is_ok());  // reconnected
  EXPECT_FALSE(scanner.is_unreadable(7));
  EXPECT_EQ(scanner.scan(victims), (std::vector<std::uint8_t>{1, 0}));
  scanner.add_unreadable(8);
  scanner.remove(8);  // client is gone
  EXPECT_EQ(scanner.scan(victims), (std::vector<std::uint8_t>{1, 0}));
}

TEST(Pins, BatchScansAgreeWithAModel) {
  std::mt19937 random(1);
  PinTable table = PinTable::create_private(512).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  std::multiset<PinTarget> model;
  std::vector<std::pair<std::uint32_t, PinTarget>> held;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0 && held.size() < 512) {
      const PinTarget target{static_cast<std::uint32_t>(random() % 100), static_cast<std::uint32_t>(random() % 3)};
      held.emplace_back(table.pin(target.slot, target.generation), target);
      model.insert(target);
    } else if (!held.empty()) {
      const std::size_t which = random() % held.size();
      table.unpin(held[which].first);
      model.erase(model.find(held[which].second));
      held[which] = held.back();
      held.pop_back();
    }
    if (step % 50 != 0) continue;
    std::vector<PinTarget> victims;
    for (std::uint32_t i = 0; i < 300; ++i)
      victims.push_back({i / 3, i % 3});
    const std::vector<std::uint8_t> pinned = scanner.scan(victims);
    for (std::size_t i = 0; i < victims.size(); ++i)
      ASSERT_EQ(pinned[i], model.count(victims[i]) > 0 ? 1 : 0);
    ASSERT_EQ(table.in_use(), model.size());
  }
}

using Noted = std::vector<std::pair<std::uint32_t, PinTarget>>;

Noted drain(PinScanner& scanner) {
  Noted noted;
  scanner.drain([&](std::uint32_t client, const PinTarget& target) { noted.emplace_back(client, target); });
  return noted;
}

TEST(Accesses, ADrainSeesWhatWasNotedSinceTheLastOneInOrder) {
  const UniqueFd first_fd = create_pin_table(8).take();
  PinTable first = attach(first_fd);
  PinTable second = PinTable::create_private(3).take();
  first.record_access(77, 1);  // not seen: noted before the daemon knows the table
  PinScanner scanner;
  ASSERT_TRUE(scanner.add(1, first_fd.get(), 8).is_ok());
  ASSERT_TRUE(scanner.add_private(2, second).is_ok());
  EXPECT_TRUE(drain(scanner).empty());
  first.record_access(0, 1);
  first.record_access(5, 0xffff'ffffU);
  second.record_access(9, 3);
  EXPECT_EQ(drain(scanner), (Noted{{1, {0, 1}}, {1, {5, 0xffff'ffffU}}, {2, {9, 3}}}));
  EXPECT_TRUE(drain(scanner).empty());
  // Accesses are stored before the pins and do not touch them.
  EXPECT_EQ(first.in_use(), 0U);
  EXPECT_EQ(scanner.count(1), 0U);
}

TEST(Accesses, OfMoreThanTheRingHoldsTheLatestAreSeen) {
  PinTable table = PinTable::create_private(3).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  for (std::uint32_t i = 0; i < kAccessRing + 10; ++i)
    table.record_access(i, 1);
  const Noted noted = drain(scanner);
  ASSERT_EQ(noted.size(), kAccessRing);
  EXPECT_EQ(noted.front().second.slot, 10U);
  EXPECT_EQ(noted.back().second.slot, kAccessRing + 9);
}

TEST(Accesses, GarbageInACursorIsBounded) {
  PinTable table = PinTable::create_private(3).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  std::memset(table.memory() + sizeof(PinTableHeader), 0xff, 8ULL * kAccessRing);
  auto* header = reinterpret_cast<PinTableHeader*>(table.memory());
  for (const std::uint32_t cursor : {0xffff'ffffU, 0x8000'0000U, 3U, 0U}) {
    header->accesses.store(cursor);
    EXPECT_LE(drain(scanner).size(), kAccessRing);
  }
}

}  // namespace
}  // namespace entrepot
