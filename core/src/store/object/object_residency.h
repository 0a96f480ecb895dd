// Object residency: which objects are in memory. The pager decides; this carries it out for objects and their blobs.
//
//   evict:  `evicting` -> one pin scan ─┬─ pinned:     `sealed` again
//                                       └─ not pinned: `spilled` -> its blobs `spilled` -> ranges freed
//   load:   ranges taken -> I/O -> the blob's place, then its word -> once all of an object's blobs are back: `sealed`
//   drop:   `evicting` -> one pin scan ─┬─ pinned:     `sealed` again
//                                       └─ not pinned: `dropped` -> index -> its blobs freed -> record freed;
//                                                      the slot stays as a marker until the object is sealed again
//                                                      or deleted, or its session ends
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/object/object_parts.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ObjectResidency {
 public:
  explicit ObjectResidency(ObjectParts& parts) : parts_(&parts) {}  // which must outlive this

  [[nodiscard]] bool is_clean(std::uint32_t slot) const;  // each of its blobs has a copy, and it has blobs
  [[nodiscard]] std::uint64_t resident_bytes(std::uint32_t slot) const;  // extents of its resident blobs

  // Evicts those of the objects, and of those that share blobs with them, that are not pinned. Only blobs with a copy
  // leave.
  struct Eviction {
    std::uint64_t bytes = 0;             // of memory freed
    std::vector<std::uint32_t> evicted;  // slots that were resident before
  };
  Eviction evict(std::span<const std::uint32_t> slots);
  // The blob's bytes were loaded to `place` (taken from the pool before). Returns the slots that became resident.
  std::vector<std::uint32_t> on_blob_loaded(std::uint32_t blob, const BlobLocation& place);
  void mark_lost(std::uint32_t slot, std::string why);  // its bytes are unrecoverable: ends it, lookups report `why`
  // Drops a recomputable object that has no copy, without writing it; lookups report it as dropped. Returns false and
  // changes nothing if it is pinned, shares its blobs, or any of them has a copy or is being written.
  [[nodiscard]] bool drop(std::uint32_t slot);

 private:
  ObjectParts* parts_;
};

}  // namespace entrepot
