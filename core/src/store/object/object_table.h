// Object table: sealing, lookup, deletion, eviction, and frees deferred until the last pin is released.
//
//   seal:    blobs -> record -> slot's fields -> slot's word -> index -> name; each step is harmless without the next
//   replace: new slot -> index entry swapped -> old slot `deleting`
//   delete:  `deleting` -> index -> names -> one scan of all pin tables -> free, or deferred until the last pin goes
//   free:    slot (generation + 1) -> reference counts of its blobs -> record
//
//   evict:   `evicting` -> one pin scan ─┬─ pinned:     `sealed` again
//                                        └─ not pinned: `spilled` -> its blobs `spilled` -> ranges freed
//   load:    ranges taken -> I/O -> the blob's place, then its word -> once all of an object's blobs are back: `sealed`
//   drop:    `evicting` -> one pin scan ─┬─ pinned:     `sealed` again
//                                        └─ not pinned: `dropped` -> index -> its blobs freed -> record freed;
//                                                       the slot stays as a marker until the object is sealed again
//                                                       or deleted, or its session ends
//
// A blob lives while a record refers to it (records of deferred objects included) or while the pager has I/O on it.
// Slot generations come from one counter for the whole store (root.generation_seed), so (ID, generation) identifies one
// version of an object whichever slot holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shm/blobs.h"
#include "shm/directory.h"
#include "shm/index.h"
#include "shm/pins.h"
#include "shm/record_arena.h"
#include "spill/backend.h"
#include "store/memory/segment_pool.h"
#include "store/object/consumers.h"
#include "store/session/locality_set_table.h"
#include "store/session/name_table.h"
#include "store/session/session_table.h"
#include "store/types.h"

namespace entrepot {

struct ObjectTableDeps {  // dependencies; all must outlive the table
  ControlMemory& memory;
  const Clock& clock;
  SessionTable& sessions;
  LocalitySetTable& sets;
  ConsumerTable& consumptions;
  NameTable& names;
  SegmentPool& pool;
  RecordArena& records;
  PinScanner& pins;
  SpillBackend* spill = nullptr;     // null: nothing leaves memory
  std::string no_spill_reason = {};  // the reason, if null
};

// Notified when objects are sealed and end; implemented by the pager, which decides about residency.
class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  virtual void object_sealed(std::uint32_t slot) = 0;  // it has blobs, and all are resident
  virtual void object_ended(std::uint32_t slot) = 0;   // unlinked; its slot's fields can still be read
};

struct ObjectAdoption {
  std::uint32_t lost = 0;              // once sealed, no longer complete
  std::uint32_t orphaned_on_disk = 0;  // of those: intact on disk, but there is no spill backend to read them
  std::uint32_t adopted = 0;
  std::uint32_t deferred = 0;  // being deleted, possibly still pinned
};

// Guarded by the daemon's thread.
class ObjectTable {
 public:
  explicit ObjectTable(const ObjectTableDeps& deps);

  // Publishes one object, or changes nothing. Sealing an object again from the same ranges with the same metadata
  // succeeds: a client may repeat the request after a reconnect.
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec);

  [[nodiscard]] LookupOutcome lookup(const IdBytes& id) const;
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;  // slot of the object, resident or not

  // Unlinks at once, with one pin scan for all. result[i]: whether ids[i] existed.
  std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  void remove_session(std::uint32_t session);  // its objects and names

  // Frees what is no longer pinned. Returns whether anything was freed.
  bool rescan();
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }
  // After an adoption: a pin refers to something damaged or unknown, so memory that seemed free then may be in use.
  [[nodiscard]] bool is_withholding() const { return !unexplained_.empty(); }
  [[nodiscard]] bool waits_for_pins() const { return !deferred_.empty() || is_withholding(); }

  // Rebuilds all derived state. Sessions, pool (adopt_begin) and pins must be adopted before; names come after.
  [[nodiscard]] Result<ObjectAdoption> adopt();

  void set_hints(std::uint32_t slot, const SlotHints& hints) { directory_.set_hints(slot, hints); }
  void set_locality_set(std::uint32_t slot, std::uint32_t set) { directory_.set_locality_set(slot, set); }

  // --- residency, in object_residency.cpp
  void listen(ResidencyListener* listener) { listener_ = listener; }
  [[nodiscard]] bool is_resident(std::uint32_t slot) const { return directory_.state(slot) == ObjectState::kSealed; }
  [[nodiscard]] std::vector<std::uint32_t> blobs_of(std::uint32_t slot) const;
  [[nodiscard]] std::vector<std::uint32_t> referencing_slots(
      std::uint32_t blob) const;                          // slots, including deleted ones that are pinned
  [[nodiscard]] bool is_clean(std::uint32_t slot) const;  // each of its blobs has a copy
  [[nodiscard]] std::uint64_t resident_bytes(std::uint32_t slot) const;  // extents of its resident blobs
  // Evicts those of the objects, and of those that share blobs with them, that are not pinned. Only blobs with a copy
  // leave.
  struct Eviction {
    std::uint64_t bytes = 0;             // of memory freed
    std::vector<std::uint32_t> evicted;  // slots that were resident before
  };
  Eviction evict(std::span<const std::uint32_t> slots);
  void retain_blob(std::uint32_t blob) { blobs_.add_reference(blob); }  // while I/O uses it
  void release_blob(std::uint32_t blob);                                // the last reference frees range and copy
  void set_copy(std::uint32_t blob, SpillLocation location);
  // The blob's bytes were loaded to `place` (taken from the pool before). Returns the slots that became resident.
  std::vector<std::uint32_t> on_blob_loaded(std::uint32_t blob, const BlobLocation& place);
  void mark_lost(std::uint32_t slot, std::string why);  // its bytes are unrecoverable: ends it, lookups report `why`
  // Drops a recomputable object that has no copy, without writing it; lookups report it as dropped. Returns false and
  // changes nothing if it is pinned, shares its blobs, or any of them has a copy or is being written.
  [[nodiscard]] bool drop(std::uint32_t slot);
  [[nodiscard]] bool is_dropped(const IdBytes& id) const { return dropped_.contains(id); }
  [[nodiscard]] std::size_t dropped() const { return dropped_.size(); }  // markers of objects not recomputed yet
  void remember(std::uint32_t slot);  // in the manifest, if all its blobs have copies
  // Adds an object listed in a manifest to a fresh store; `session`: index of a live one. Objects that share a copy
  // share a blob.
  using RecoveredBlobs = std::unordered_map<SpillLocation, BlobRef>;
  [[nodiscard]] Status adopt_spilled(const SpilledObject& object, std::uint32_t session, RecoveredBlobs& adopted_blobs);
  [[nodiscard]] std::uint64_t clean_bytes() const { return clean_bytes_; }      // resident, with a copy
  [[nodiscard]] std::uint64_t spilled_bytes() const { return spilled_bytes_; }  // not resident

  [[nodiscard]] const DirectoryWriter& directory() const { return directory_; }
  [[nodiscard]] const BlobWriter& blobs() const { return blobs_; }
  [[nodiscard]] Result<RecordView> record(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t count() const { return sealed_; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t deferred_bytes() const;

 private:
  struct ValidatedSeal {  // a validated seal in progress
    std::uint32_t session = 0;
    std::uint32_t locality_set = 0;  // as in Slot
    std::uint32_t consumers = 0;
    std::uint64_t payload_bytes = 0;
    std::optional<std::uint32_t> replaced;  // slot
  };

  [[nodiscard]] Status check(std::uint32_t client, const SealSpec& spec, ValidatedSeal& validated) const;
  [[nodiscard]] Status check_blobs(std::uint32_t client, const SealSpec& spec) const;
  [[nodiscard]] Status check_buffers(const SealSpec& spec, ValidatedSeal& validated) const;
  [[nodiscard]] bool is_same(std::uint32_t slot, const SealSpec& spec) const;
  SealOutcome publish(std::uint32_t client, const SealSpec& spec, const ValidatedSeal& validated);
  [[nodiscard]] Result<std::vector<std::uint32_t>> publish_blobs(const SealSpec& spec);
  [[nodiscard]] Result<std::uint64_t> write_record(const SealSpec& spec, const std::vector<std::uint32_t>& fresh,
                                                   std::vector<BlobRef>& refs, std::uint32_t& bytes);
  void undo_blobs(const std::vector<std::uint32_t>& blobs);
  [[nodiscard]] std::uint32_t take_generation();
  void unlink(std::uint32_t slot);  // sealed -> deleting; removed from the index and its session
  void free_or_defer(std::vector<PinTarget> victims);
  void withhold_unexplained_pins(std::span<const std::uint32_t> damaged);
  bool release_withheld_memory();
  void free_object(std::uint32_t slot);
  void erase_drop_marker(const IdBytes& id);
  void erase_drop_markers_of(std::uint32_t session);
  [[nodiscard]] std::string drop_reason(std::uint32_t slot) const;
  void adopt_dropped(std::uint32_t slot);
  [[nodiscard]] Status adopt_object(std::uint32_t slot, bool sealed);
  [[nodiscard]] Status adopt_blob(std::uint32_t blob);
  [[nodiscard]] Status adopt_spilled_retained(const SpilledObject& object, const RecordView& view,
                                              std::uint32_t session, RecoveredBlobs& adopted_blobs,
                                              std::vector<std::uint32_t>& retained);
  void add_slot_reference(std::uint32_t blob, std::uint32_t slot);
  void drop_slot_reference(std::uint32_t blob, std::uint32_t slot);
  [[nodiscard]] std::uint64_t extent_of(std::uint32_t blob) const;

  static constexpr std::uint32_t kNoReference = 0xffff'ffffU;

  ObjectTableDeps deps_;
  ResidencyListener* listener_ = nullptr;
  std::vector<std::uint32_t> first_referencing_slot_;                             // by blob: a slot that refers to it
  std::unordered_multimap<std::uint32_t, std::uint32_t> more_referencing_slots_;  // of blobs shared by several slots
  std::uint64_t clean_bytes_ = 0;
  std::uint64_t spilled_bytes_ = 0;
  DirectoryWriter directory_;
  BlobWriter blobs_;
  IndexWriter index_;
  std::vector<PinTarget> deferred_;
  std::vector<PinTarget> unexplained_;  // pinned during adoption, or damaged; empty: no memory is withheld
  // Objects found damaged and neither sealed again nor deleted since, with the cause.
  std::unordered_map<IdBytes, std::string, IdHash> lost_;
  std::unordered_map<IdBytes, std::uint32_t, IdHash> dropped_;  // to the slot that is its marker
  std::uint32_t sealed_ = 0;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace entrepot
