// The directory: slots, one per object. The daemon writes them, clients find objects in them without asking anybody.
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

// CRC over a slot's fields and the generation; what an adopting daemon compares with Slot::crc.
[[nodiscard]] std::uint32_t slot_crc(const Slot& slot, std::uint32_t generation);

// What an adoption found, by slot.
struct DirectoryAdoption {
  std::vector<std::uint32_t> sealed;    // word sealed, evicting or spilled, checksum fits
  std::vector<std::uint32_t> deleting;  // unlinked, waiting for the last pin; checksum fits
  std::vector<std::uint32_t> dropped;   // notes of what can be made again; checksum fits
  std::vector<std::uint32_t> damaged;   // checksum does not fit: now kLost; free them once nobody pins them
};

// Guarded by the daemon's thread.
class DirectoryWriter {
 public:
  explicit DirectoryWriter(ControlMemory& memory);

  // Over memory that an earlier daemon wrote. Unsealed slots become free. Once, first.
  [[nodiscard]] DirectoryAdoption adopt();

  [[nodiscard]] Result<std::uint32_t> allocate() { return table_.allocate(); }  // then publish_sealed or abandon
  void abandon(std::uint32_t slot) { table_.abandon(slot); }
  [[nodiscard]] std::uint32_t next_generation(std::uint32_t slot) const { return table_.next_generation(slot); }

  // Writes the fields, then the word (release). Returns the word. The index is the caller's next step.
  std::uint64_t publish_sealed(std::uint32_t slot, const SlotFields& fields, MemoryKind kind = MemoryKind::kUnknown) {
    return publish(slot, fields, ObjectState::kSealed, kind);
  }
  std::uint64_t publish(std::uint32_t slot, const SlotFields& fields, ObjectState state, MemoryKind kind);

  // By sequentially consistent exchange; afterwards scan the pin tables. Returns the word that was there.
  std::uint64_t mark_deleting(std::uint32_t slot) {
    return table_.set_state(slot, static_cast<std::uint8_t>(ObjectState::kDeleting));
  }
  // Eviction: evicting, then pins are scanned; then sealed again, or spilled. Loaded: sealed.
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

  // Nobody pins it: the slot's life ends, generation + 1 (or retired).
  void free(std::uint32_t slot) { table_.free(slot); }

  [[nodiscard]] const Slot& at(std::uint32_t slot) const { return table_.at(slot); }
  [[nodiscard]] std::uint64_t word(std::uint32_t slot) const { return table_.word(slot); }
  [[nodiscard]] ObjectState state(std::uint32_t slot) const {
    return static_cast<ObjectState>(Word::state(table_.word(slot)));
  }
  // Somebody who asks for it by its ID gets it, at once or from cold storage.
  [[nodiscard]] bool is_findable(std::uint32_t slot) const {
    const ObjectState now = state(slot);
    return now == ObjectState::kSealed || now == ObjectState::kSpilled || now == ObjectState::kEvicting;
  }
  [[nodiscard]] std::uint32_t generation(std::uint32_t slot) const { return Word::generation(table_.word(slot)); }
  [[nodiscard]] bool is_live(std::uint32_t slot, std::uint32_t generation) const {
    return table_.is_live(slot, generation);
  }
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }  // scan slots [0, size())
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }
  [[nodiscard]] std::uint32_t retired() const { return table_.retired(); }

  EntryTable<Slot>& table() { return table_; }

 private:
  EntryTable<Slot> table_;
};

// A place in the directory and the word that was there. Only a hint until a pin was published and recheck() said yes.
struct Found {
  std::uint32_t slot = 0;
  std::uint64_t word = 0;
  [[nodiscard]] std::uint32_t generation() const { return Word::generation(word); }
  [[nodiscard]] MemoryKind kind() const { return static_cast<MemoryKind>(Word::kind(word)); }
};

// The client's side: no allocation, no lock, no system call. Safe from any thread.
//
//   found = find(id); position = pins.pin(found->slot, found->generation()); if (recheck(*found)) slot(found->slot) and
//   its record may be read until unpin(position); else unpin(position) and look again.
class DirectoryReader {
 public:
  explicit DirectoryReader(const ControlView& view);  // the view outlives the reader

  // The sealed object of this ID. None: not found (confirm with the daemon: the table may be just being rebuilt).
  [[nodiscard]] std::optional<Found> find(const IdBytes& id) const;

  // The same for a slot that the daemon named in an answer: none unless it is sealed, of that generation and ID.
  [[nodiscard]] std::optional<Found> at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) const;

  // The same for an object whose payload is in memory or in cold storage; for reading its record alone. Not while it is
  // evicting: the daemon scans the pins then, and may drop the object, record and all, if it found none (see pins.h).
  [[nodiscard]] std::optional<Found> find_existing(const IdBytes& id) const;
  [[nodiscard]] std::optional<Found> existing_at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) const;
  // After pinning: may its record be read? Its payload may have moved meanwhile, its record has not. A pin that comes
  // after the daemon's scan meets `evicting` or what follows it here; one that came before was seen.
  [[nodiscard]] bool still_exists(const Found& found) const {
    const std::uint64_t word = slots_[found.slot].word.load(std::memory_order_seq_cst);
    return Word::generation(word) == found.generation() && has_record(word);
  }

  // After pinning: is the slot still in the life and state that `found` saw? Sequentially consistent.
  [[nodiscard]] bool recheck(const Found& found) const {
    return slots_[found.slot].word.load(std::memory_order_seq_cst) == found.word;
  }

  // Fields may be read only while pinned and re-checked.
  [[nodiscard]] const Slot& slot(std::uint32_t number) const { return slots_[number]; }
  // Whether an object that can be found lies in the slot of a store whose daemon writes no more.
  [[nodiscard]] bool held_object(std::uint32_t number) const {
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
  // Templates, so that the hot path compares and does not call.
  template <bool (*wanted)(std::uint64_t)>
  [[nodiscard]] std::optional<Found> find_if(const IdBytes& id) const;
  template <bool (*wanted)(std::uint64_t)>
  [[nodiscard]] std::optional<Found> at_if(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) const;

  const Root* root_;
  const Slot* slots_;
  std::uint32_t capacity_;
  IndexReader index_;
};

}  // namespace entrepot
