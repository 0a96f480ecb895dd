// Reader threads against a daemon thread over the process-local fake, for ThreadSanitizer. The payload is plain memory
// that the daemon overwrites as soon as it is unpinned; a wrong order shows as a data race or as a value that does not
// belong to the ID.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "fakes/fake_memory.h"
#include "os/clock.h"

namespace entrepot {
namespace {

using testing::FakeStore;
using testing::numbered_id;

constexpr std::uint64_t kObjects = 64;
constexpr std::uint64_t kOverwritten = ~0ULL;

struct Shared {
  FakeStore store;
  // Indexed by slot. Written by the daemon before the slot is published and after the last unpin. Not atomic.
  std::vector<std::uint64_t> payload = std::vector<std::uint64_t>(1U << 13, kOverwritten);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> refused{0};  // rejected by the re-check
};

void read_until_stopped(Shared& shared, PinTable& table, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uint64_t reads = 0;
  std::uint64_t wrong = 0;
  std::uint64_t refused = 0;
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t number = random() % kObjects;
    const std::optional<SlotSnapshot> snapshot = shared.store.reader.find(numbered_id(number));
    if (!snapshot) continue;
    const std::uint32_t position = table.pin(snapshot->slot, snapshot->generation());
    if (position == PinTable::kNoPosition) {
      ++wrong;
      break;
    }
    if (shared.store.reader.recheck(*snapshot)) {
      const bool right = shared.payload[snapshot->slot] == number &&
                         shared.store.reader.slot(snapshot->slot).id == numbered_id(number) &&
                         shared.payload[snapshot->slot] == number;
      ++(right ? reads : wrong);
    } else {
      ++refused;
    }
    table.unpin(position);
  }
  shared.reads += reads;
  shared.wrong += wrong;
  shared.refused += refused;
}

class FakeDaemon {
 public:
  FakeDaemon(Shared& shared, PinScanner& scanner) : shared_(shared), scanner_(scanner), slots_(kObjects, kNone) {}

  void step() {
    const std::uint64_t number = random_() % kObjects;
    const IdBytes id = numbered_id(number);
    std::uint32_t& slot = slots_[number];
    const std::uint32_t choice = static_cast<std::uint32_t>(random_() % 16);
    if (choice == 0) {
      const std::uint32_t log2 = shared_.store.index.log2();
      ASSERT_TRUE(shared_.store.index.rebuild(log2 < 12 && random_() % 2 == 0 ? log2 + 1 : kIndexMinLog2).is_ok());
    } else if (slot == kNone) {
      slot = make(number);
      ASSERT_TRUE(shared_.store.index.insert(id, slot).is_ok());
    } else if (choice < 8) {
      shared_.store.unlink(id, slot);
      deferred_.push_back(slot);
      slot = kNone;
    } else {
      const std::uint32_t old_slot = slot;
      slot = make(number);
      ASSERT_TRUE(shared_.store.index.replace(id, old_slot, slot));
      shared_.store.directory.mark_deleting(old_slot);
      deferred_.push_back(old_slot);
    }
    free_unpinned();
  }

  [[nodiscard]] std::uint64_t frees() const { return frees_; }
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }
  void free_unpinned() {
    std::vector<PinTarget> victims;
    for (const std::uint32_t slot : deferred_)
      victims.push_back({slot, shared_.store.directory.generation(slot)});
    const std::vector<std::uint8_t> pinned = scanner_.scan(victims);
    deferred_.clear();
    for (std::size_t i = 0; i < victims.size(); ++i) {
      if (pinned[i] != 0) {
        deferred_.push_back(victims[i].slot);
        continue;
      }
      shared_.payload[victims[i].slot] = kOverwritten;
      shared_.store.directory.free(victims[i].slot);
      ++frees_;
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  std::uint32_t make(std::uint64_t number) {
    const std::uint32_t slot = shared_.store.directory.allocate().take();
    shared_.payload[slot] = number;
    shared_.store.directory.publish_sealed(slot, {.id = numbered_id(number)});
    return slot;
  }

  Shared& shared_;
  PinScanner& scanner_;
  std::mt19937 random_{7};
  std::vector<std::uint32_t> slots_;
  std::deque<std::uint32_t> deferred_;
  std::uint64_t frees_ = 0;
};

TEST(Threads, ReadersNeverSeeFreedPayloadWhileTheDaemonDeletesReplacesAndRebuilds) {
  Shared shared;
  PinTable first = PinTable::create_private(64).take();  // shared by two threads, as within one process
  PinTable second = PinTable::create_private(64).take();
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, first).is_ok());
  ASSERT_TRUE(scanner.add_private(2, second).is_ok());
  std::vector<std::thread> readers;
  readers.emplace_back([&] { read_until_stopped(shared, first, 1); });
  readers.emplace_back([&] { read_until_stopped(shared, first, 2); });
  readers.emplace_back([&] { read_until_stopped(shared, second, 3); });
  FakeDaemon daemon(shared, scanner);
  const os::Deadline enough = os::Deadline::after_ms(2000);
  while (!enough.passed() && !HasFatalFailure()) {
    for (int i = 0; i < 100; ++i)
      daemon.step();
  }
  shared.stop.store(true);
  for (std::thread& reader : readers)
    reader.join();
  EXPECT_EQ(shared.wrong.load(), 0U);
  EXPECT_GT(shared.reads.load(), 1000U);
  EXPECT_GT(daemon.frees(), 1000U);
  daemon.free_unpinned();
  EXPECT_EQ(daemon.deferred(), 0U);
  EXPECT_EQ(first.in_use() + second.in_use(), 0U);
}

TEST(Threads, TheWordAloneCarriesTheFieldsOfASlot) {
  // No index and no other word is shared: a thread that sees the slot sealed may read its fields.
  FakeStore store;
  constexpr std::uint64_t kRounds = 2000;
  std::vector<std::uint32_t> slots;
  for (std::uint64_t i = 0; i < kRounds; ++i)
    slots.push_back(store.directory.allocate().take());
  std::uint64_t wrong = 0;
  std::thread reader([&] {
    const os::Deadline watchdog = os::Deadline::after_ms(60'000);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      while (!store.reader.at(slots[i], 1, numbered_id(i)) && !watchdog.passed()) {
      }
      const Slot& slot = store.reader.slot(slots[i]);
      if (slot.payload_bytes != i || slot.sealed_unix_ns != i + 1 || slot.record_bytes != 64) ++wrong;
    }
  });
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    store.directory.publish_sealed(
        slots[i], {.id = numbered_id(i), .record_bytes = 64, .payload_bytes = i, .sealed_unix_ns = i + 1});
  }
  reader.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(Threads, APositionBelongsToOneThreadAtATime) {
  // Few positions and no pauses, to provoke ABA: the free stack's top is popped and pushed back between the load and
  // the exchange.
  constexpr std::uint32_t kThreads = 4;
  PinTable table = PinTable::create_private(2 * kThreads).take();
  std::vector<std::atomic<std::uint32_t>> owner(2 * kThreads);
  std::atomic<std::uint64_t> failures{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 1; t <= kThreads; ++t) {
    threads.emplace_back([&, t] {
      const os::Deadline enough = os::Deadline::after_ms(1500);
      while (!enough.passed()) {
        for (int i = 0; i < 1000; ++i) {
          const std::uint32_t a = table.pin(t, 1);
          const std::uint32_t b = table.pin(t, 2);
          if (a == PinTable::kNoPosition || b == PinTable::kNoPosition) {
            ++failures;
            return;
          }
          if (owner[a].exchange(t) != 0 || owner[b].exchange(t) != 0) ++failures;
          if (owner[a].exchange(0) != t || owner[b].exchange(0) != t) ++failures;
          table.unpin(i % 2 == 0 ? a : b);
          table.unpin(i % 2 == 0 ? b : a);
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures.load(), 0U);
  EXPECT_EQ(table.in_use(), 0U);
}

TEST(Threads, ManyThreadsShareOnePinTableWithoutLosingPlaces) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 8;
  PinTable table = PinTable::create_private(kThreads * kEach).take();
  std::atomic<std::uint32_t> failures{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<std::uint32_t, std::uint64_t>> held;
      for (int step = 0; step < 20'000; ++step) {
        if (held.size() < kEach && random() % 2 == 0) {
          const std::uint32_t slot = t * 1'000'000 + static_cast<std::uint32_t>(step);
          const std::uint32_t position = table.pin(slot, t + 1);
          if (position == PinTable::kNoPosition) {
            ++failures;  // there are enough positions for every thread
            continue;
          }
          held.emplace_back(position, PinWord::make(slot, t + 1));
        } else if (!held.empty()) {
          const std::size_t which = random() % held.size();
          if (table.pin_at(held[which].first) != held[which].second) ++failures;  // taken by another thread too
          table.unpin(held[which].first);
          held[which] = held.back();
          held.pop_back();
        }
      }
      for (const auto& [position, pin] : held)
        table.unpin(position);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures.load(), 0U);
  EXPECT_EQ(table.in_use(), 0U);
  PinScanner scanner;
  ASSERT_TRUE(scanner.add_private(1, table).is_ok());
  EXPECT_EQ(scanner.count(1), 0U);
  for (std::uint32_t i = 0; i < kThreads * kEach; ++i)
    EXPECT_NE(table.pin(i, 1), PinTable::kNoPosition);
  EXPECT_EQ(table.pin(0, 1), PinTable::kNoPosition);
}

}  // namespace
}  // namespace entrepot
