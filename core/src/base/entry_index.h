// EntryIndex: finds numbered entries of a table by a key that only the table has. It holds no keys: a number and a hash
// for each entry, in a hash table with linear probing.
//
// EntryLists: lists of numbered entries, each entry in at most one of them, without an allocation for each. OwnedEntries:
// such lists of numbered owners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace entrepot {

inline constexpr std::uint32_t kNoEntry = 0xffff'ffffU;

// Not synchronized. Pointers that it returns are valid until it changes.
class EntryIndex {
 public:
  // Returns the number of the entry with this hash for which `is_it(number)`; null: there is none.
  template <class IsIt>
  [[nodiscard]] const std::uint32_t* find(std::uint64_t hash, IsIt&& is_it) const {
    const std::size_t at = position(fold(hash), is_it);
    return at == kNowhere ? nullptr : &buckets_[at].entry;
  }

  // Adds an entry. There must be none with the same key.
  void insert(std::uint64_t hash, std::uint32_t entry) {
    if ((size_ + 1) * 4 > buckets_.size() * 3) grow();
    place(buckets_, {entry, fold(hash)});
    ++size_;
  }

  // Exchanges the number of an entry, which must be in the index, for another with the same key.
  void replace(std::uint64_t hash, std::uint32_t entry, std::uint32_t by) {
    const std::size_t at = position(fold(hash), [&](std::uint32_t number) { return number == entry; });
    if (at != kNowhere) buckets_[at].entry = by;
  }

  void erase(std::uint64_t hash, std::uint32_t entry) {
    std::size_t hole = position(fold(hash), [&](std::uint32_t number) { return number == entry; });
    if (hole == kNowhere) return;
    const std::size_t mask = buckets_.size() - 1;
    // Closes the gap, so that no search ends early: each later bucket of the run moves into it unless that would put
    // it before its own place.
    for (std::size_t at = (hole + 1) & mask; buckets_[at].entry != kNoEntry; at = (at + 1) & mask) {
      const std::size_t home = buckets_[at].hash & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      buckets_[hole] = buckets_[at];
      hole = at;
    }
    buckets_[hole] = {};
    --size_;
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Bucket& bucket : buckets_) {
      if (bucket.entry != kNoEntry) visit(bucket.entry);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  // Returns memory that its entries do not need.
  void trim() {
    std::size_t wanted = size_ == 0 ? 0 : kFirst;
    while (size_ * 4 > wanted * 3)
      wanted *= 2;
    if (wanted < buckets_.size()) rehash(wanted);
  }

 private:
  struct Bucket {
    std::uint32_t entry = kNoEntry;
    std::uint32_t hash = 0;
  };
  static constexpr std::size_t kNowhere = SIZE_MAX;
  static constexpr std::size_t kFirst = 16;

  [[nodiscard]] static std::uint32_t fold(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash ^ (hash >> 32));
  }

  template <class IsIt>
  [[nodiscard]] std::size_t position(std::uint32_t hash, IsIt&& is_it) const {
    if (buckets_.empty()) return kNowhere;
    const std::size_t mask = buckets_.size() - 1;
    for (std::size_t at = hash & mask; buckets_[at].entry != kNoEntry; at = (at + 1) & mask) {
      if (buckets_[at].hash == hash && is_it(buckets_[at].entry)) return at;
    }
    return kNowhere;
  }

  static void place(std::vector<Bucket>& buckets, const Bucket& bucket) {
    const std::size_t mask = buckets.size() - 1;
    std::size_t at = bucket.hash & mask;
    while (buckets[at].entry != kNoEntry)
      at = (at + 1) & mask;
    buckets[at] = bucket;
  }

  void grow() { rehash(buckets_.empty() ? kFirst : buckets_.size() * 2); }

  void rehash(std::size_t buckets) {
    std::vector<Bucket> other(buckets);
    for (const Bucket& bucket : buckets_) {
      if (bucket.entry != kNoEntry) place(other, bucket);
    }
    buckets_ = std::move(other);
  }

  std::vector<Bucket> buckets_;  // a power of two, at most three quarters in use
  std::size_t size_ = 0;
};

// Not synchronized. The owner keeps the first entry of each list; kNoEntry: it is empty.
class EntryLists {
 public:
  void push_front(std::uint32_t& first, std::uint32_t entry) {
    if (entry >= links_.size()) links_.resize(entry + std::size_t{1});
    links_[entry] = {first, kNoEntry};
    if (first != kNoEntry) links_[first].before = entry;
    first = entry;
  }

  // The entry must be in the list.
  void remove(std::uint32_t& first, std::uint32_t entry) {
    const Links links = std::exchange(links_[entry], {});
    if (links.next != kNoEntry) links_[links.next].before = links.before;
    (links.before != kNoEntry ? links_[links.before].next : first) = links.next;
  }

  [[nodiscard]] std::uint32_t next(std::uint32_t entry) const { return links_[entry].next; }
  [[nodiscard]] bool contains(std::uint32_t entry) const {  // any of the lists
    return entry < links_.size() && links_[entry].before != kUnlisted;
  }

  // Returns the memory for entries from this number on, none of which may be in a list.
  void trim(std::uint32_t end) {
    if (end >= links_.size()) return;
    links_.resize(end);
    links_.shrink_to_fit();
  }

 private:
  struct Links {
    std::uint32_t next = kNoEntry;
    std::uint32_t before = kUnlisted;
  };
  static constexpr std::uint32_t kUnlisted = kNoEntry - 1;
  std::vector<Links> links_;  // by entry
};

// Not synchronized.
class OwnedEntries {
 public:
  void add(std::uint32_t owner, std::uint32_t entry) {
    if (owner >= first_.size()) first_.resize(owner + std::size_t{1}, kNoEntry);
    lists_.push_front(first_[owner], entry);
  }
  void remove(std::uint32_t owner, std::uint32_t entry) { lists_.remove(first_[owner], entry); }  // it must have it

  // kNoEntry: it has none.
  [[nodiscard]] std::uint32_t first(std::uint32_t owner) const {
    return owner < first_.size() ? first_[owner] : kNoEntry;
  }
  [[nodiscard]] std::uint32_t next(std::uint32_t entry) const { return lists_.next(entry); }
  void trim(std::uint32_t end) { lists_.trim(end); }  // as EntryLists::trim()

 private:
  EntryLists lists_;
  std::vector<std::uint32_t> first_;  // by owner
};

}  // namespace entrepot
