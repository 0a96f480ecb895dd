#include "base/entry_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace entrepot::testing {
namespace {

TEST(EntryIndex, FindsWhatAMapFinds) {
  std::mt19937 random(7);
  // Few hashes, so that runs are long and wrap around the end.
  for (const std::uint32_t hashes : {3U, 40U, 100'000U}) {
    EntryIndex index;
    std::map<std::uint32_t, std::uint32_t> entries;  // key -> entry
    std::map<std::uint32_t, std::uint32_t> keys;     // entry -> key
    const auto hash_of = [&](std::uint32_t key) { return std::uint64_t{0xffff'fff0U} + key % hashes; };
    std::uint32_t next = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto key = static_cast<std::uint32_t>(random() % 300);
      const auto has_key = [&](std::uint32_t entry) { return keys.at(entry) == key; };
      if (step % 500 == 0) index.trim();
      const std::uint32_t* entry = index.find(hash_of(key), has_key);
      const auto expected = entries.find(key);
      ASSERT_EQ(entry != nullptr, expected != entries.end());
      if (entry == nullptr) {
        entries[key] = next;
        keys[next] = key;
        index.insert(hash_of(key), next++);
        continue;
      }
      ASSERT_EQ(*entry, expected->second);
      if (random() % 4 == 0) {
        keys[next] = key;
        index.replace(hash_of(key), expected->second, next);
        expected->second = next++;
      } else {
        index.erase(hash_of(key), expected->second);
        entries.erase(expected);
      }
    }
    ASSERT_EQ(index.size(), entries.size());
    std::size_t visited = 0;
    index.for_each([&](std::uint32_t entry) { visited += entries.at(keys.at(entry)) == entry ? 1 : 0; });
    EXPECT_EQ(visited, entries.size());
  }
}

TEST(EntryLists, EachEntryIsInOneList) {
  EntryLists lists;
  std::uint32_t even = kNoEntry;
  std::uint32_t odd = kNoEntry;
  for (std::uint32_t entry = 0; entry < 10; ++entry)
    lists.push_front(entry % 2 == 0 ? even : odd, entry);
  const auto all = [&](std::uint32_t first) {
    std::vector<std::uint32_t> entries;
    for (std::uint32_t entry = first; entry != kNoEntry; entry = lists.next(entry))
      entries.push_back(entry);
    return entries;
  };
  lists.remove(even, 8);  // the first
  lists.remove(even, 0);  // the last
  lists.remove(odd, 5);
  EXPECT_EQ(all(even), (std::vector<std::uint32_t>{6, 4, 2}));
  EXPECT_EQ(all(odd), (std::vector<std::uint32_t>{9, 7, 3, 1}));
  for (const std::uint32_t entry : {2U, 6U, 4U})
    lists.remove(even, entry);
  EXPECT_EQ(even, kNoEntry);
  EXPECT_EQ(all(odd), (std::vector<std::uint32_t>{9, 7, 3, 1}));
  lists.remove(odd, 9);
  EXPECT_FALSE(lists.contains(9));
  EXPECT_TRUE(lists.contains(7));
  EXPECT_FALSE(lists.contains(1'000));
  lists.trim(8);
  EXPECT_EQ(all(odd), (std::vector<std::uint32_t>{7, 3, 1}));
  lists.push_front(even, 12);
  EXPECT_EQ(all(even), (std::vector<std::uint32_t>{12}));
}

TEST(OwnedEntries, AnOwnerWithoutEntriesHasNone) {
  OwnedEntries entries;
  EXPECT_EQ(entries.first(3), kNoEntry);
  entries.add(3, 7);
  entries.add(3, 8);
  EXPECT_EQ(entries.first(3), 8U);
  EXPECT_EQ(entries.next(8), 7U);
  EXPECT_EQ(entries.first(2), kNoEntry);
  entries.remove(3, 8);
  entries.remove(3, 7);
  EXPECT_EQ(entries.first(3), kNoEntry);
}

}  // namespace
}  // namespace entrepot::testing
