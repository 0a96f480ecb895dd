// The hash index over the slots: open addressing, linear probing, entries of 8 bytes (slot and 32 bits of hash).
//
// An entry is a hint: the ID in the slot decides, read under the slot's word. A reader that probes while the daemon
// rebuilds may miss an object that is there (the client confirms a miss over the socket), and can never take another.
//
// State of a table: empty -> filled by the daemon -> published by root.index_word -> replaced -> cleared. Two tables of
// one size lie in two areas, so that the one that readers use is never the one that is being filled.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm/control.h"
#include "shm/layout.h"

namespace entrepot {

// The ID in a slot, compared without a data race with a daemon that rewrites the slot. Acquire loads: whoever sees a
// byte of a new ID also sees the word change that came before it.
[[nodiscard]] bool slot_id_equals(const Slot& slot, const IdBytes& id);
// The daemon's counterpart (release stores).
void slot_id_store(Slot& slot, const IdBytes& id);

// The largest table that a region of this capacity holds twice: kIndexMaxLog2 unless a test made it smaller.
[[nodiscard]] std::uint32_t index_max_log2(const Region& region);
// IndexWord::first_entry for such a region.
[[nodiscard]] constexpr std::uint64_t index_first_entry(std::uint64_t word, std::uint32_t max_log2) {
  return (static_cast<std::uint64_t>(IndexWord::area(word)) << (max_log2 + 1)) + (1ULL << IndexWord::log2(word));
}
static_assert(index_first_entry(IndexWord::make(kIndexMinLog2, 1, 7), kIndexMaxLog2) ==
              IndexWord::first_entry(IndexWord::make(kIndexMinLog2, 1, 7)));

// Guarded by the daemon's thread. Slots that are inserted must hold their ID already.
class IndexWriter {
 public:
  explicit IndexWriter(ControlMemory& memory);

  // An empty table of at least `expected` objects' size, published. Needed once, on creation or adoption: after an
  // adoption insert every sealed slot again. Goes to the area that the published table is not in.
  [[nodiscard]] Status reset(std::uint32_t expected = 0);

  // `slot` holds `id`, which is not in the index yet. Grows or cleans the table first where needed; kStoreFull if there
  // is no memory for that.
  [[nodiscard]] Status insert(const IdBytes& id, std::uint32_t slot);

  // So that the next insert() succeeds. kStoreFull if there is no memory for that.
  [[nodiscard]] Status prepare();

  // False if the pair is not there.
  bool remove(const IdBytes& id, std::uint32_t slot);

  // Points the entry of `old_slot` at `new_slot` (which holds the same ID) in one store: a reader finds the one or the
  // other, never none. False if the old pair is not there.
  bool replace(const IdBytes& id, std::uint32_t old_slot, std::uint32_t new_slot);

  // The slot of `id`, whatever state it is in.
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;

  // Copies all live entries into a fresh table of 2^log2 entries and publishes it.
  [[nodiscard]] Status rebuild(std::uint32_t log2);

  [[nodiscard]] std::uint32_t log2() const { return log2_; }
  [[nodiscard]] std::uint64_t live() const { return live_; }
  [[nodiscard]] std::uint64_t tombstones() const { return tombstones_; }
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  using Entry = std::atomic<std::uint64_t>;

  [[nodiscard]] Entry* table(std::uint64_t word) const;
  // The position of the pair, or nothing.
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

// Safe from any thread; no allocation, no lock, no system call.
class IndexReader {
 public:
  explicit IndexReader(const ControlView& view);

  // Calls `match(slot)` for every slot whose entry has the ID's tag until it says true; that slot, or none. Slot
  // numbers are below the directory's high-water mark. Bounded by the size of the table.
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
        for (int look = 0; look < kLooks; ++look) {
          const std::uint32_t slot_plus_one = IndexEntry::slot_plus_one(entry);
          if (slot_plus_one == 0 || slot_plus_one == IndexEntry::kTombstone || IndexEntry::tag(entry) != tag) break;
          // The slot's pages are there: the mark is raised before the first entry names a slot.
          if (slot_plus_one <= root_->slot_high_water.load(std::memory_order_acquire) && match(slot_plus_one - 1)) {
            return slot_plus_one - 1;
          }
          // No match because the object was just replaced: the entry names its new slot by now.
          const std::uint64_t again = table[at].load(std::memory_order_acquire);
          if (again == entry) break;
          entry = again;
        }
      }
      // The table may have been replaced and cleared under us: then the new one is worth a look.
      if (root_->index_word.load(std::memory_order_acquire) == word) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  using Entry = std::atomic<std::uint64_t>;
  static constexpr int kAttempts = 4;  // at a table that is replaced while it is probed
  static constexpr int kLooks = 4;     // at an entry that changes while it is read

  const Root* root_;
  const Entry* entries_;
  std::uint32_t max_log2_;
};

}  // namespace entrepot
