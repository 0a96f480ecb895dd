// Blob table: the blobs of all objects, which objects refer to each, where its bytes are, and how many bytes that makes.
//
// A blob lives while a record refers to it (records of deferred objects included) or while the pager has I/O on it:
//
//   publish ──▶ in a lease, no reference ─┬─add_reference, take_ranges──▶ referenced, in the pool's memory
//                                         └─withdraw──▶ gone; its range is still leased
//   publish_copy ──▶ on disk, no reference ──add_reference, retain──▶ referenced
//   referenced ──last drop_reference or release──▶ gone; range and copy are free
//
// Where the bytes of a referenced blob are:
//
//   in memory ──set_copy──▶ in memory and on disk (clean) ──evict──▶ on disk (spilled) ──on_loaded──▶ clean
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "shm/blobs.h"
#include "spill/backend.h"
#include "store/memory/segment_pool.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
//
// References are counted by hand, not by handles that release in a destructor. What a release frees is in shared memory
// and on disk, and outlives the process: entries, ranges and copies must stay as they are when a daemon ends, even
// those of I/O in progress (which spans turns of the event loop), and when a successor has taken them over while the
// old tables still exist. So only a completion or the end of an object releases a blob. A destructor would also run
// when a test simulates a crash by an exception, and tidy up what a crash leaves behind.
class BlobTable {
 public:
  // `spill` null: nothing leaves memory, for the reason given. Pool and spill backend must outlive the table.
  BlobTable(ControlMemory& memory, SegmentPool& pool, SpillBackend* spill, std::string no_spill_reason);

  // --- publication
  // Publishes one blob for each range, all of which are leased. Publishes none if one fails.
  [[nodiscard]] Result<std::vector<std::uint32_t>> publish(std::span<const BlobRange> ranges);
  void withdraw(std::span<const std::uint32_t> blobs);  // undoes publish()
  void take_ranges(std::span<const BlobRange> ranges);  // from the lease, once an object refers to the blobs

  // --- references
  void add_reference(std::uint32_t blob, std::uint32_t slot);  // of the record of that slot
  void drop_reference(std::uint32_t blob, std::uint32_t slot);
  void retain(std::uint32_t blob) { blobs_.add_reference(blob); }  // while I/O uses it
  void release(std::uint32_t blob);                                // the last reference frees range and copy
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
  [[nodiscard]] Result<BlobRef> publish_copy(const SpilledBlob& copy);

  // --- one blob
  [[nodiscard]] bool exists(std::uint32_t blob, std::uint32_t generation) const {
    return blobs_.exists(blob, generation);
  }
  [[nodiscard]] bool is_sealed(std::uint32_t blob, std::uint32_t generation) const {  // exists, and is resident
    return blobs_.is_sealed(blob, generation);
  }
  [[nodiscard]] bool is_resident(std::uint32_t blob) const { return blobs_.is_resident(blob); }
  [[nodiscard]] BlobLocation place(std::uint32_t blob) const { return blobs_.place(blob); }
  [[nodiscard]] SpillLocation copy(std::uint32_t blob) const { return blobs_.copy(blob); }         // 0: none
  [[nodiscard]] BlobRef ref(std::uint32_t blob) const { return {blob, blobs_.generation(blob)}; }  // for a record
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
  static constexpr std::uint32_t kNoReference = 0xffff'ffffU;

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
