// Hash index over the slots: open addressing, linear probing, 8-byte entries (slot and 32 bits of the hash).
//
// An entry is a hint: what counts is the ID in the slot, read under the slot's word. A reader that probes while the
// daemon rebuilds may miss an existing object (the client confirms a miss over the socket), but can never return a
// wrong one.
//
// State of a table: empty -> filled by the daemon -> published by root.index_word -> replaced -> cleared. Tables of one
// size have a place in each of two areas, so that the table in use is never the one being filled.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm/control.h"
#include "shm/layout.h"

namespace entrepot {

// Compares the ID in a slot without a data race with a daemon that rewrites the slot. Acquire loads: a reader that sees
// a byte of a new ID also sees the word change that preceded it.
[[nodiscard]] bool slot_id_equals(const Slot& slot, const IdBytes& id);
// Stores the ID with release stores, the daemon's counterpart.
void slot_id_store(Slot& slot, const IdBytes& id);

// log2 of the largest table that fits twice into a region of this capacity: kIndexMaxLog2, unless a test made it
// smaller.
[[nodiscard]] std::uint32_t index_max_log2(const Region& region);
// IndexWord::first_entry for a region with that maximum.
[[nodiscard]] constexpr std::uint64_t index_first_entry(std::uint64_t word, std::uint32_t max_log2) {
  return (static_cast<std::uint64_t>(IndexWord::area(word)) << (max_log2 + 1)) + (1ULL << IndexWord::log2(word));
}
static_assert(index_first_entry(IndexWord::make(kIndexMinLog2, 1, 7), kIndexMaxLog2) ==
              IndexWord::first_entry(IndexWord::make(kIndexMinLog2, 1, 7)));

// The daemon's side. Guarded by the daemon's thread. Inserted slots must already hold their ID.
class IndexWriter {
 public:
  explicit IndexWriter(ControlMemory& memory);

  // Publishes an empty table for at least `expected` objects, in the area not used by the published table. Required
  // once after creation or adoption; after an adoption, insert every sealed slot again.
  [[nodiscard]] Status reset(std::uint32_t expected = 0);

  // Adds `slot`, which holds `id`; the ID must not be in the index yet. Grows or cleans the table first if needed;
  // kStoreFull if there is no memory for that.
  [[nodiscard]] Status insert(const IdBytes& id, std::uint32_t slot);

  // Ensures that the next insert() succeeds. kStoreFull if there is no memory for that.
  [[nodiscard]] Status prepare();

  // False if the pair is not in the index.
  bool remove(const IdBytes& id, std::uint32_t slot);

  // Redirects the entry of `old_slot` to `new_slot` (which holds the same ID) in one store: a reader finds one or the
  // other, never none. False if the old pair is not in the index.
  bool replace(const IdBytes& id, std::uint32_t old_slot, std::uint32_t new_slot);

  // Returns the slot of `id`, in whatever state it is.
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;

  // Copies all live entries into a new table of 2^log2 entries and publishes it.
  [[nodiscard]] Status rebuild(std::uint32_t log2);

  // Replaces a table that is at least four times too large, if there is memory for the smaller one. Returns the number
  // of bytes returned.
  std::uint64_t trim();

  [[nodiscard]] std::uint32_t log2() const { return log2_; }
  [[nodiscard]] std::uint64_t live() const { return live_; }
  [[nodiscard]] std::uint64_t tombstones() const { return tombstones_; }
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  using Entry = std::atomic<std::uint64_t>;

  [[nodiscard]] Entry* table(std::uint64_t word) const;
  // Position of the pair, if present.
  [[nodiscard]] std::optional<std::uint64_t> position_of(const IdBytes& id, std::uint32_t slot) const;
  void put(Entry* table, std::uint64_t mask, std::uint64_t entry, std::uint64_t home);
  Status open_table(std::uint32_t log2, std::uint64_t& word);
  void publish(std::uint64_t word);
  Status discard(std::uint64_t word);
  [[nodiscard]] std::uint32_t smallest_log2(std::uint64_t objects) const;

  Region* region_;
  Root* root_;
  const Slot* slots_;
  std::uint32_t max_log2_;
  std::uint32_t log2_ = 0;  // 0: no table yet
  std::uint64_t word_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t tombstones_ = 0;
};

// The client's side. Safe from any thread; no allocation, no lock, no system call.
class IndexReader {
 public:
  explicit IndexReader(const ControlView& view);

  // Calls `match(slot)` for every slot whose entry has the ID's tag until it returns true, and returns that slot, or
  // nullopt. Slot numbers are below the directory's high-water mark. Bounded by the size of the table.
  template <class Match>
  [[nodiscard]] std::optional<std::uint32_t> probe(std::uint64_t hash, Match&& match) const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t word = root_->index_word.load(std::memory_order_acquire);
      const std::uint32_t log2 = IndexWord::log2(word);
      if (log2 < kIndexMinLog2 || log2 > max_log2_) return std::nullopt;
      const Entry* table = entries_ + index_first_entry(word, max_log2_);
      const std::uint64_t mask = (1ULL << log2) - 1;
      const auto tag = static_cast<std::uint32_t>(hash >> 32);
      std::uint64_t at = hash & mask;
      for (std::uint64_t i = 0; i <= mask; ++i, at = (at + 1) & mask) {
        std::uint64_t entry = table[at].load(std::memory_order_acquire);
        if (IndexEntry::slot_plus_one(entry) == 0) break;
        for (int retry = 0; retry < kEntryRetries; ++retry) {
          const std::uint32_t slot_plus_one = IndexEntry::slot_plus_one(entry);
          if (slot_plus_one == 0 || slot_plus_one == IndexEntry::kTombstone || IndexEntry::tag(entry) != tag) break;
          // The slot's pages exist: the mark is raised before the first entry names a slot.
          if (slot_plus_one <= root_->slot_high_water.load(std::memory_order_acquire) && match(slot_plus_one - 1)) {
            return slot_plus_one - 1;
          }
          // No match may mean that the object was just replaced: the entry then names its new slot.
          const std::uint64_t again = table[at].load(std::memory_order_acquire);
          if (again == entry) break;
          entry = again;
        }
      }
      // If the table was replaced and cleared during the probe, probe the new one.
      if (root_->index_word.load(std::memory_order_acquire) == word) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  using Entry = std::atomic<std::uint64_t>;
  static constexpr int kAttempts = 4;      // retries when the table is replaced during a probe
  static constexpr int kEntryRetries = 4;  // retries when an entry changes while it is read

  const Root* root_;
  const Entry* entries_;
  std::uint32_t max_log2_;
};

}  // namespace entrepot
