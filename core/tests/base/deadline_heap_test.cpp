#include "base/deadline_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace entrepot {
namespace {

using Heap = DeadlineHeap<std::string>;

// Takes everybody who is due, in order.
std::vector<std::string> take_due(Heap& heap, std::uint64_t now_ns) {
  std::vector<std::string> due;
  while (const auto handle = heap.first_due(now_ns)) {
    due.push_back(heap.owner(*handle));
    heap.disarm(*handle);
  }
  return due;
}

TEST(DeadlineHeap, TheEarliestComesFirstAndOfEqualOnesTheOneArmedFirst) {
  Heap heap;
  EXPECT_EQ(heap.next_ns(), kNoDeadline);
  EXPECT_FALSE(heap.first_due(kNoDeadline - 1));
  const auto late = heap.add("late");
  const auto second = heap.add("second");
  const auto first = heap.add("first");
  static_cast<void>(heap.add("idle"));
  heap.arm(late, 30);
  heap.arm(first, 20);
  heap.arm(second, 20);
  EXPECT_EQ(heap.next_ns(), 20U);
  EXPECT_FALSE(heap.first_due(19));
  EXPECT_EQ(take_due(heap, 20), (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(take_due(heap, 1000), (std::vector<std::string>{"late"}));
  EXPECT_EQ(heap.armed(), 0U);
  EXPECT_EQ(heap.size(), 4U);
}

TEST(DeadlineHeap, ADeadlineIsMovedAndRemovedByHandle) {
  Heap heap;
  const auto a = heap.add("a");
  const auto b = heap.add("b");
  heap.arm(a, 10);
  heap.arm(b, 20);
  heap.arm(a, 30);
  EXPECT_EQ(heap.next_ns(), 20U);
  EXPECT_EQ(heap.deadline_ns(a), 30U);
  heap.arm(a, 5);
  EXPECT_EQ(heap.next_ns(), 5U);
  heap.arm(a, kNoDeadline);
  EXPECT_FALSE(heap.is_armed(a));
  EXPECT_EQ(heap.next_ns(), 20U);
  heap.disarm(b);
  heap.disarm(b);
  EXPECT_EQ(heap.next_ns(), kNoDeadline);
}

TEST(DeadlineHeap, ArmingForTheSameTimeKeepsTheOrder) {
  Heap heap;
  const auto a = heap.add("a");
  const auto b = heap.add("b");
  heap.arm(a, 10);
  heap.arm(b, 10);
  heap.arm(a, 10);
  EXPECT_EQ(take_due(heap, 10), (std::vector<std::string>{"a", "b"}));
}

TEST(DeadlineHeap, RemovalDestroysTheOwnerAndItsHandleIsReused) {
  DeadlineHeap<std::shared_ptr<int>> heap;
  const auto owner = std::make_shared<int>(1);
  const auto handle = heap.add(owner);
  heap.arm(handle, 10);
  heap.remove(handle);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_FALSE(heap.is_used(handle));
  EXPECT_EQ(heap.next_ns(), kNoDeadline);
  EXPECT_EQ(heap.add(owner), handle);
  EXPECT_FALSE(heap.is_armed(handle)) << "the deadline was the former owner's";
  EXPECT_EQ(heap.size(), 1U);
}

// The same operations on a list that is searched from end to end.
struct NaiveList {
  struct Entry {
    std::string owner;
    std::uint64_t at_ns = kNoDeadline;
    std::uint64_t order = 0;
    std::uint32_t handle = 0;
  };
  std::vector<Entry> entries;
  std::uint64_t next_order = 0;

  Entry* find(std::uint32_t handle) {
    const auto match =
        std::find_if(entries.begin(), entries.end(), [&](auto& entry) { return entry.handle == handle; });
    return match == entries.end() ? nullptr : &*match;
  }
  void arm(std::uint32_t handle, std::uint64_t at_ns) {
    Entry& entry = *find(handle);
    if (entry.at_ns != at_ns) entry = {entry.owner, at_ns, next_order++, handle};
  }
  [[nodiscard]] std::uint64_t next_ns() const {
    std::uint64_t next = kNoDeadline;
    for (const Entry& entry : entries)
      next = std::min(next, entry.at_ns);
    return next;
  }
  std::vector<std::string> take_due(std::uint64_t now_ns) {
    std::vector<Entry*> due;
    for (Entry& entry : entries) {
      if (entry.at_ns <= now_ns) due.push_back(&entry);
    }
    std::sort(due.begin(), due.end(), [](const Entry* a, const Entry* b) {
      return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
    });
    std::vector<std::string> owners;
    for (Entry* entry : due) {
      owners.push_back(entry->owner);
      entry->at_ns = kNoDeadline;
    }
    return owners;
  }
};

TEST(DeadlineHeap, DoesWhatANaiveListDoes) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Heap heap;
    NaiveList model;
    std::uint64_t now_ns = 0;
    std::uint32_t added = 0;
    const auto any = [&]() -> NaiveList::Entry& { return model.entries[random() % model.entries.size()]; };
    for (int step = 0; step < 2000; ++step) {
      const std::uint64_t choice = model.entries.empty() ? 0 : random() % 10;
      if (choice < 2 && model.entries.size() < 50) {
        const std::string owner = "owner " + std::to_string(added++);
        model.entries.push_back({owner, kNoDeadline, 0, heap.add(owner)});
      } else if (choice < 6) {
        const std::uint64_t at_ns = now_ns + random() % 40;  // few different ones, so that some are equal
        const std::uint32_t handle = any().handle;
        heap.arm(handle, at_ns);
        model.arm(handle, at_ns);
      } else if (choice == 6) {
        NaiveList::Entry& entry = any();
        heap.disarm(entry.handle);
        entry.at_ns = kNoDeadline;
      } else if (choice == 7) {
        const std::uint32_t handle = any().handle;
        heap.remove(handle);
        std::erase_if(model.entries, [&](auto& entry) { return entry.handle == handle; });
      } else if (choice == 8) {
        now_ns += random() % 10;
        ASSERT_EQ(take_due(heap, now_ns), model.take_due(now_ns));
      }
      ASSERT_EQ(heap.next_ns(), model.next_ns());
      ASSERT_EQ(heap.size(), model.entries.size());
      for (const NaiveList::Entry& entry : model.entries)
        ASSERT_EQ(heap.deadline_ns(entry.handle), entry.at_ns);
    }
  }
}

}  // namespace
}  // namespace entrepot
