// The life cycle of objects: seal, find, delete, and the frees that wait for the last pin.
//
//   seal:    blobs -> record -> slot's fields -> slot's word -> index -> name      each step is harmless without the
//   next replace: the new slot first, then the index entry swapped, then the old slot `deleting` delete:  word
//   `deleting` -> index -> names -> one scan of all pin tables -> free, or deferred until the last pin goes free: slot
//   first (generation + 1), then its blobs' counts, then its record
//
//   evict:   `evicting` -> one scan of the pins -> pinned: `sealed` again; else `spilled` -> its blobs `spilled` ->
//   ranges load:    ranges -> I/O -> a blob's place, then its word -> when all of an object's blobs are back: `sealed`
//   drop:    `evicting` -> one scan of the pins -> pinned: `sealed` again; else `dropped` -> index -> its blobs freed
//   -> record; the slot stays as a note until the object is sealed anew, deleted, or its session ends
//
// A blob lives while a record lists it, deferred ones included, or while the pager's I/O holds it. Generations of slots
// come from one counter of the whole store (root.generation_seed), so that (ID, generation) names one life of one ID,
// wherever its slot lies.
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
#include "store/cold_storage.h"
#include "store/consumption.h"
#include "store/names.h"
#include "store/segment_pool.h"
#include "store/sessions.h"
#include "store/set_table.h"
#include "store/types.h"

namespace entrepot {

struct ObjectParts {  // what the life cycle works on; all outlive it
  ControlMemory& memory;
  const Clock& clock;
  SessionTable& sessions;
  SetTable& sets;
  ConsumptionTable& consumptions;
  NameTable& names;
  SegmentPool& pool;
  RecordArena& records;
  PinScanner& pins;
  ColdStorage* cold = nullptr;   // none: nothing leaves memory
  std::string no_cold_why = {};  // if there is none
};

// Who decides about residency is told of births and ends.
class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  virtual void object_sealed(std::uint32_t slot) = 0;  // it has blobs, and all are resident
  virtual void object_ended(std::uint32_t slot) = 0;   // unlinked; its slot's fields can still be read
};

struct ObjectAdoption {
  std::uint32_t lost = 0;          // sealed once, and not whole any more
  std::uint32_t left_on_disk = 0;  // of those: their copies are on disk, and there is no cold storage to read them
  std::uint32_t adopted = 0;
  std::uint32_t deferred = 0;  // being deleted, still pinned perhaps
};

// Guarded by the daemon's thread.
class ObjectTable {
 public:
  explicit ObjectTable(const ObjectParts& parts);

  // Publishes one object, or changes nothing. Sealing what is sealed already, from the same ranges and with the same
  // metadata, is success: a client may repeat the request after a reconnect.
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec);

  [[nodiscard]] LookupOutcome lookup(const IdBytes& id) const;
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;  // slot of the object, resident or not

  // Unlinks at once; one scan of the pins for all. result[i]: it was there.
  std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  void remove_session(std::uint32_t session);  // its objects and names

  // Frees what nobody pins any more. Returns whether anything was freed.
  bool rescan();
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }
  // Since an adoption: a pin names what is damaged or unknown, so whatever memory seemed free then may be read.
  [[nodiscard]] bool is_withholding() const { return !unexplained_.empty(); }
  [[nodiscard]] bool waits_for_pins() const { return !deferred_.empty() || is_withholding(); }

  // Everything is derived anew. Sessions, pool (adopt_begin) and pins have adopted before; names come after.
  [[nodiscard]] Result<ObjectAdoption> adopt();

  void set_hints(std::uint32_t slot, const SlotHints& hints) { directory_.set_hints(slot, hints); }
  void set_locality_set(std::uint32_t slot, std::uint32_t set) { directory_.set_locality_set(slot, set); }

  // --- residency, in objects_residency.cpp
  void listen(ResidencyListener* listener) { listener_ = listener; }
  [[nodiscard]] bool is_resident(std::uint32_t slot) const { return directory_.state(slot) == ObjectState::kSealed; }
  [[nodiscard]] std::vector<std::uint32_t> blobs_of(std::uint32_t slot) const;
  [[nodiscard]] std::vector<std::uint32_t> users_of(
      std::uint32_t blob) const;                                         // slots, deleted but pinned ones included
  [[nodiscard]] bool is_clean(std::uint32_t slot) const;                 // each of its blobs has a copy
  [[nodiscard]] std::uint64_t resident_bytes(std::uint32_t slot) const;  // of its blobs' extents
  // Moves out what nobody pins of these objects, and of those that share blobs with them. Only blobs with a copy go.
  struct Eviction {
    std::uint64_t bytes = 0;             // of memory, free now
    std::vector<std::uint32_t> evicted;  // slots, resident before
  };
  Eviction evict(std::span<const std::uint32_t> slots);
  void hold_blob(std::uint32_t blob) { blobs_.add_reference(blob); }  // while I/O works on it
  void let_go_blob(std::uint32_t blob);                               // the last one to go frees range and copy
  void set_copy(std::uint32_t blob, SpillLocation location);
  // The bytes are at `place` (taken from the pool before). Slots that are resident by it.
  std::vector<std::uint32_t> blob_arrived(std::uint32_t blob, const BlobPlace& place);
  void lose(std::uint32_t slot, std::string why);  // its bytes cannot be had back: ends it, lookups say so
  // Ends an object that can be made again and has no copy, without writing it; lookups say so. False, and nothing
  // changes, if it is pinned, shares its blobs, or any of them has a copy or is being written.
  [[nodiscard]] bool drop(std::uint32_t slot);
  [[nodiscard]] bool is_dropped(const IdBytes& id) const { return dropped_.contains(id); }
  [[nodiscard]] std::size_t dropped() const { return dropped_.size(); }  // notes of what is not made again yet
  void remember(std::uint32_t slot);  // in the manifest, if all its blobs have copies
  // What a manifest lists, into a fresh store; `session`: index of a live one. Objects that share a copy share a blob.
  using RecoveredBlobs = std::unordered_map<SpillLocation, BlobRef>;
  [[nodiscard]] Status adopt_cold(const ColdObject& object, std::uint32_t session, RecoveredBlobs& known);
  [[nodiscard]] std::uint64_t clean_bytes() const { return clean_bytes_; }      // resident, with a copy
  [[nodiscard]] std::uint64_t spilled_bytes() const { return spilled_bytes_; }  // not resident

  [[nodiscard]] const DirectoryWriter& directory() const { return directory_; }
  [[nodiscard]] const BlobWriter& blobs() const { return blobs_; }
  [[nodiscard]] Result<RecordView> record(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t count() const { return sealed_; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t deferred_bytes() const;

 private:
  struct Placed {  // a checked seal on its way
    std::uint32_t session = 0;
    std::uint32_t locality_set = 0;  // as in Slot
    std::uint32_t consumers = 0;
    std::uint64_t payload_bytes = 0;
    std::optional<std::uint32_t> replaced;  // slot
  };

  [[nodiscard]] Status check(std::uint32_t client, const SealSpec& spec, Placed& placed) const;
  [[nodiscard]] Status check_blobs(std::uint32_t client, const SealSpec& spec) const;
  [[nodiscard]] Status check_buffers(const SealSpec& spec, Placed& placed) const;
  [[nodiscard]] bool is_same(std::uint32_t slot, const SealSpec& spec) const;
  SealOutcome publish(std::uint32_t client, const SealSpec& spec, const Placed& placed);
  [[nodiscard]] Result<std::vector<std::uint32_t>> publish_blobs(const SealSpec& spec);
  [[nodiscard]] Result<std::uint64_t> write_record(const SealSpec& spec, const std::vector<std::uint32_t>& fresh,
                                                   std::vector<BlobRef>& refs, std::uint32_t& bytes);
  void undo_blobs(const std::vector<std::uint32_t>& blobs);
  [[nodiscard]] std::uint32_t take_generation();
  void unlink(std::uint32_t slot);  // sealed -> deleting, out of the index and its session
  void collect(std::vector<PinTarget> victims);
  void withhold_what_is_unexplained(std::span<const std::uint32_t> damaged);
  bool give_back_withheld();
  void free_object(std::uint32_t slot);
  void forget_dropped(const IdBytes& id);
  void forget_dropped_of(std::uint32_t session);
  [[nodiscard]] std::string why_dropped(std::uint32_t slot) const;
  void adopt_dropped(std::uint32_t slot);
  [[nodiscard]] Status adopt_object(std::uint32_t slot, bool sealed);
  [[nodiscard]] Status adopt_blob(std::uint32_t blob);
  [[nodiscard]] Status adopt_cold_held(const ColdObject& object, const RecordView& view, std::uint32_t session,
                                       RecoveredBlobs& known, std::vector<std::uint32_t>& held);
  void add_user(std::uint32_t blob, std::uint32_t slot);
  void drop_user(std::uint32_t blob, std::uint32_t slot);
  [[nodiscard]] std::uint64_t extent_of(std::uint32_t blob) const;

  static constexpr std::uint32_t kNoUser = 0xffff'ffffU;

  ObjectParts parts_;
  ResidencyListener* listener_ = nullptr;
  std::vector<std::uint32_t> first_user_;                             // by blob: a slot that lists it
  std::unordered_multimap<std::uint32_t, std::uint32_t> more_users_;  // of blobs that several share
  std::uint64_t clean_bytes_ = 0;
  std::uint64_t spilled_bytes_ = 0;
  DirectoryWriter directory_;
  BlobWriter blobs_;
  IndexWriter index_;
  std::vector<PinTarget> deferred_;
  std::vector<PinTarget> unexplained_;  // pinned at the adoption, or damaged; empty: no memory is withheld
  // Found damaged, and neither sealed anew nor deleted since: what damaged them.
  std::unordered_map<IdBytes, std::string, IdHash> lost_;
  std::unordered_map<IdBytes, std::uint32_t, IdHash> dropped_;  // the slots that are notes of them
  std::uint32_t sealed_ = 0;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace entrepot
