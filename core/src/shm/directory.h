// The directory: one slot per object. The daemon writes it; clients find objects in it without asking the daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "shm/index.h"
#include "shm/layout.h"

namespace entrepot {

struct SlotFields {
  IdBytes id{};
  std::uint32_t session = 0;
  std::uint64_t record_offset = 0;
  std::uint32_t record_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t sealed_unix_ns = 0;
  std::uint32_t creator = 0;
  std::uint32_t locality_set = 0;  // index + 1
  SlotHints hints{};
};

// CRC over a slot's fields and generation, stored as Slot::crc and checked on adoption.
[[nodiscard]] std::uint32_t slot_crc(const Slot& slot, std::uint32_t generation);

// Result of an adoption: slots by state.
struct DirectoryAdoption {
  std::vector<std::uint32_t> sealed;    // sealed, evicting or spilled; checksum matches
  std::vector<std::uint32_t> deleting;  // not in the index, waiting for the last pin; checksum matches
  std::vector<std::uint32_t> dropped;   // markers of dropped objects; checksum matches
  std::vector<std::uint32_t> damaged;   // wrong checksum: now kLost; free them once nobody pins them
};

// Guarded by the daemon's thread.
class DirectoryWriter {
 public:
  explicit DirectoryWriter(ControlMemory& memory);

  // Reads the slots of an earlier daemon; unsealed slots become free. Call once, before anything else.
  [[nodiscard]] DirectoryAdoption adopt();

  [[nodiscard]] Result<std::uint32_t> allocate() { return table_.allocate(); }  // follow with publish_sealed or abandon
  void abandon(std::uint32_t slot) { table_.abandon(slot); }
  [[nodiscard]] std::uint32_t next_generation(std::uint32_t slot) const { return table_.next_generation(slot); }

  // Writes the fields, then the word (release), and returns the word. The caller then updates the index.
  std::uint64_t publish_sealed(std::uint32_t slot, const SlotFields& fields, MemoryKind kind = MemoryKind::kUnknown) {
    return publish(slot, fields, ObjectState::kSealed, kind);
  }
  std::uint64_t publish(std::uint32_t slot, const SlotFields& fields, ObjectState state, MemoryKind kind);

  // Uses a sequentially consistent exchange; scan the pin tables afterwards. Returns the previous word.
  std::uint64_t mark_deleting(std::uint32_t slot) {
    return table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kDeleting));
  }
  // Eviction: evicting, then a scan of the pins, then sealed again, spilled or dropped. After loading: sealed.
  void mark_evicting(std::uint32_t slot) { table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kEvicting)); }
  void mark_spilled(std::uint32_t slot) { table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kSpilled)); }
  void mark_sealed(std::uint32_t slot) { table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kSealed)); }
  void mark_dropped(std::uint32_t slot) { table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kDropped)); }
  void set_in_manifest(std::uint32_t slot, bool listed) { table_.at(slot).spill_location = listed ? 1 : 0; }
  [[nodiscard]] bool in_manifest(std::uint32_t slot) const { return table_.at(slot).spill_location != 0; }
  [[nodiscard]] SlotHints hints(std::uint32_t slot) const {
    return SlotHints::of(table_.at(slot).hints.load(std::memory_order_relaxed));
  }
  void set_hints(std::uint32_t slot, const SlotHints& hints) {
    table_.at(slot).hints.store(hints.word(), std::memory_order_relaxed);
  }
  void set_locality_set(std::uint32_t slot, std::uint32_t set) { table_.at(slot).locality_set = set; }
  std::uint64_t mark_lost(std::uint32_t slot) {
    return table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kLost));
  }

  // Ends the slot's life (generation + 1, or retired). Nobody may pin it.
  void free(std::uint32_t slot) { table_.free(slot); }

  [[nodiscard]] const Slot& at(std::uint32_t slot) const { return table_.at(slot); }
  [[nodiscard]] std::uint64_t word(std::uint32_t slot) const { return table_.word(slot); }
  [[nodiscard]] ObjectState state(std::uint32_t slot) const {
    return static_cast<ObjectState>(Word::state(table_.word(slot)));
  }
  // A lookup by ID returns the object, at once or after reloading it from disk.
  [[nodiscard]] bool is_findable(std::uint32_t slot) const {
    const ObjectState current = state(slot);
    return current == ObjectState::kSealed || current == ObjectState::kSpilled || current == ObjectState::kEvicting;
  }
  [[nodiscard]] std::uint32_t generation(std::uint32_t slot) const { return Word::generation(table_.word(slot)); }
  [[nodiscard]] bool is_live(std::uint32_t slot, std::uint32_t generation) const {
    return table_.is_live(slot, generation);
  }
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }  // scan slots [0, size())
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }
  [[nodiscard]] std::uint32_t retired() const { return table_.retired(); }

  std::uint64_t trim() { return table_.trim(); }  // generations are set by the catalog, from one counter

  EntryTable<Slot>& table() { return table_; }

 private:
  EntryTable<Slot> table_;
};

// A slot and the word read from it. Only a hint until a pin was published and recheck() returned true.
struct SlotSnapshot {
  std::uint32_t slot = 0;
  std::uint64_t word = 0;
  [[nodiscard]] std::uint32_t generation() const { return Word::generation(word); }
  [[nodiscard]] MemoryKind kind() const { return static_cast<MemoryKind>(Word::kind(word)); }
};

// The client's side: no allocation, no lock, no system call. Safe from any thread.
//
//   found = find(id)
//   position = pins.pin(found->slot, found->generation())
//   if (recheck(*found))  slot(found->slot) and its record may be read until unpin(position)
//   else                  unpin(position) and look it up again
class DirectoryReader {
 public:
  explicit DirectoryReader(const ControlView& view);  // the view must outlive the reader

  // Returns the sealed object with this ID. Confirm a miss with the daemon: the table may be being rebuilt.
  [[nodiscard]] std::optional<SlotSnapshot> find(const IdBytes& id) const;

  // The same for a slot named in a daemon's answer: nullopt unless it is sealed and has that generation and ID.
  [[nodiscard]] std::optional<SlotSnapshot> at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) const;

  // The same for an object in memory or on disk, for reading only its record. Excludes `evicting`: in that state the
  // daemon scans the pins, and if it finds none it may drop the object including its record (see pins.h).
  [[nodiscard]] std::optional<SlotSnapshot> find_existing(const IdBytes& id) const;
  [[nodiscard]] std::optional<SlotSnapshot> existing_at(std::uint32_t slot, std::uint32_t generation,
                                                        const IdBytes& id) const;
  // After pinning: true if the object's record may be read. Its payload may have moved meanwhile; its record has not. A
  // pin published after the daemon's scan sees `evicting` or a later state here; one published before was seen by the
  // scan.
  [[nodiscard]] bool still_exists(const SlotSnapshot& snapshot) const {
    const std::uint64_t word = slots_[snapshot.slot].word.load(std::memory_order_seq_cst);
    return Word::generation(word) == snapshot.generation() && has_record(word);
  }

  // After pinning: true if the slot still has the generation and state of `found`. Sequentially consistent.
  [[nodiscard]] bool recheck(const SlotSnapshot& snapshot) const {
    return slots_[snapshot.slot].word.load(std::memory_order_seq_cst) == snapshot.word;
  }

  // Fields may be read only while pinned and rechecked.
  [[nodiscard]] const Slot& slot(std::uint32_t number) const { return slots_[number]; }
  // For a store without a running daemon: true if the slot holds an object that could be found.
  [[nodiscard]] bool had_object(std::uint32_t number) const {
    const std::uint64_t word = slots_[number].word.load(std::memory_order_acquire);
    return has_record(word) || static_cast<ObjectState>(Word::state(word)) == ObjectState::kEvicting;
  }
  [[nodiscard]] std::uint32_t high_water() const { return root_->slot_high_water.load(std::memory_order_acquire); }

 private:
  static bool is_sealed(std::uint64_t word) {
    return Word::state(word) == static_cast<std::uint8_t>(ObjectState::kSealed);
  }
  static bool has_record(std::uint64_t word) {
    const auto state = static_cast<ObjectState>(Word::state(word));
    return state == ObjectState::kSealed || state == ObjectState::kSpilled;
  }
  // Templates, so that the hot path inlines the comparison instead of calling it.
  template <bool (*accepts)(std::uint64_t)>
  [[nodiscard]] std::optional<SlotSnapshot> find_if(const IdBytes& id) const;
  template <bool (*accepts)(std::uint64_t)>
  [[nodiscard]] std::optional<SlotSnapshot> at_if(std::uint32_t slot, std::uint32_t generation,
                                                  const IdBytes& id) const;

  const Root* root_;
  const Slot* slots_;
  std::uint32_t capacity_;
  IndexReader index_;
};

}  // namespace entrepot
