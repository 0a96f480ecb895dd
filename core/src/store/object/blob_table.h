// Blob table: the blobs of all objects, which objects refer to each, where its bytes are, and how many bytes that makes.
//
// A blob lives while a record refers to it (records of deferred objects included) or while the pager has I/O on it:
//
//   publish ──▶ in a lease, no reference ─┬─add_reference, take_ranges, commit──▶ referenced, in the pool's memory
//                                         └─not committed──▶ gone; its range is still leased
//   publish_copy ──▶ on disk, no reference ──add_reference, retain──▶ referenced
//   referenced ──last drop_reference, or end of a BlobRef──▶ gone; range and copy are free
//
// Where the bytes of a referenced blob are:
//
//   in memory ──set_copy──▶ in memory and on disk (clean) ──evict──▶ on disk (spilled) ──on_loaded──▶ clean
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/blobs.h"
#include "spill/backend.h"
#include "store/memory/segment_pool.h"
#include "store/object/unwinding.h"
#include "store/types.h"

namespace entrepot {

class BlobTable;

// A reference to a blob that no record holds, for the time of an operation on it. Released when it is destroyed, unless
// it was detached; what a death of the daemon leaves stays as it is. Guarded by the daemon's thread; the table must
// outlive it.
class BlobRef {
 public:
  BlobRef() = default;  // none
  BlobRef(BlobRef&& other) noexcept { *this = std::move(other); }
  BlobRef& operator=(BlobRef&& other) noexcept;
  ~BlobRef();

  [[nodiscard]] std::uint32_t blob() const { return blob_; }
  void release();                      // the last one frees range and copy
  void detach() { table_ = nullptr; }  // counts on, for as long as the table lives: its work outlives the process

 private:
  friend class BlobTable;
  BlobRef(BlobTable& table, std::uint32_t blob) : table_(&table), blob_(blob) {}

  BlobTable* table_ = nullptr;  // null: nothing is referenced
  std::uint32_t blob_ = 0;
  Unwinding unwinding_;
};

// Blobs that were just published, for an object that is not. Withdrawn when it is destroyed, unless they were committed:
// an object refers to them.
class FreshBlobs {
 public:
  FreshBlobs(FreshBlobs&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), blobs_(std::move(other.blobs_)) {}
  FreshBlobs& operator=(FreshBlobs&&) = delete;
  ~FreshBlobs();

  [[nodiscard]] std::span<const std::uint32_t> blobs() const { return blobs_; }  // in the order of their ranges
  void commit() { table_ = nullptr; }

 private:
  friend class BlobTable;
  explicit FreshBlobs(BlobTable& table) : table_(&table) {}

  BlobTable* table_;  // null: committed
  std::vector<std::uint32_t> blobs_;
  Unwinding unwinding_;
};

// References of a record that is being adopted blob by blob. Dropped when it is destroyed, unless they were committed:
// the record has all of its references.
class RecordReferences {
 public:
  RecordReferences(BlobTable& blobs, std::uint32_t slot) : table_(&blobs), slot_(slot) {}
  RecordReferences(const RecordReferences&) = delete;
  RecordReferences& operator=(const RecordReferences&) = delete;
  ~RecordReferences();

  void add(std::uint32_t blob);
  void commit() { table_ = nullptr; }

 private:
  BlobTable* table_;  // null: committed
  std::uint32_t slot_;
  std::vector<std::uint32_t> blobs_;
  Unwinding unwinding_;
};

// Guarded by the daemon's thread.
//
// The references of records are counted explicitly: a record is in shared memory and outlives the process, so no
// destructor may end them. All others are held by a BlobRef.
class BlobTable {
 public:
  // `spill` null: nothing leaves memory, for the reason given. Pool and spill backend must outlive the table.
  BlobTable(ControlMemory& memory, SegmentPool& pool, SpillBackend* spill, std::string no_spill_reason);

  // --- publication
  // Publishes one blob for each range, all of which are leased. Publishes none if one fails.
  [[nodiscard]] Result<FreshBlobs> publish(std::span<const BlobRange> ranges);
  void take_ranges(std::span<const BlobRange> ranges);  // from the lease, once an object refers to the blobs

  // --- references
  void add_reference(std::uint32_t blob, std::uint32_t slot);  // of the record of that slot
  void drop_reference(std::uint32_t blob, std::uint32_t slot);
  [[nodiscard]] BlobRef retain(std::uint32_t blob);
  // Including deleted ones that are pinned.
  [[nodiscard]] std::vector<std::uint32_t> referencing_slots(std::uint32_t blob) const;

  // --- memory and disk
  void set_copy(std::uint32_t blob, SpillLocation location);
  std::uint64_t evict(std::uint32_t blob);  // a resident one with a copy; returns the bytes of memory freed
  void on_loaded(std::uint32_t blob, const BlobLocation& place);  // `place` was taken from the pool before

  // --- adoption
  [[nodiscard]] BlobAdoption adopt() { return blobs_.adopt(); }  // call once, before anything else
  // Claims the range of a resident blob, and its copy if it has one; once, before its first reference.
  // kStoreUnavailable: its only copy is on disk, and this daemon has no spill backend; other errors say what became of
  // that copy.
  [[nodiscard]] Status claim(std::uint32_t blob);
  void free_unreferenced(const BlobAdoption& adopted);  // after the last object was adopted
  // Takes over a copy that an earlier store left on disk, as a new blob.
  [[nodiscard]] Result<RecordBlob> publish_copy(const SpilledBlob& copy);

  // --- one blob
  [[nodiscard]] bool exists(std::uint32_t blob, std::uint32_t generation) const {
    return blobs_.exists(blob, generation);
  }
  [[nodiscard]] bool is_sealed(std::uint32_t blob, std::uint32_t generation) const {  // exists, and is resident
    return blobs_.is_sealed(blob, generation);
  }
  [[nodiscard]] bool is_resident(std::uint32_t blob) const { return blobs_.is_resident(blob); }
  [[nodiscard]] BlobLocation place(std::uint32_t blob) const { return blobs_.place(blob); }
  [[nodiscard]] SpillLocation copy(std::uint32_t blob) const { return blobs_.copy(blob); }            // 0: none
  [[nodiscard]] RecordBlob ref(std::uint32_t blob) const { return {blob, blobs_.generation(blob)}; }  // for a record
  [[nodiscard]] BlobKey key(std::uint32_t blob) const { return blobs_.key(blob); }
  [[nodiscard]] std::uint32_t generation(std::uint32_t blob) const { return blobs_.generation(blob); }
  [[nodiscard]] std::uint32_t references(std::uint32_t blob) const { return blobs_.references(blob); }
  [[nodiscard]] std::uint64_t extent_bytes(std::uint32_t blob) const;  // that a resident one occupies

  // --- figures
  [[nodiscard]] std::uint32_t size() const { return blobs_.size(); }  // all numbers are below
  [[nodiscard]] std::uint32_t live() const { return blobs_.live(); }
  [[nodiscard]] std::uint64_t clean_bytes() const { return clean_bytes_; }      // resident, with a copy
  [[nodiscard]] std::uint64_t spilled_bytes() const { return spilled_bytes_; }  // not resident

 private:
  friend class BlobRef;
  friend class FreshBlobs;
  static constexpr std::uint32_t kNoReference = 0xffff'ffffU;

  void release(std::uint32_t blob);
  void withdraw(std::span<const std::uint32_t> blobs);  // undoes publish()

  SegmentPool* pool_;
  SpillBackend* spill_;
  std::string no_spill_reason_;
  BlobWriter blobs_;
  std::vector<std::uint32_t> first_referencing_slot_;                             // by blob: a slot that refers to it
  std::unordered_multimap<std::uint32_t, std::uint32_t> more_referencing_slots_;  // of blobs shared by several slots
  std::uint64_t clean_bytes_ = 0;
  std::uint64_t spilled_bytes_ = 0;
};

}  // namespace entrepot
