// Reload reserve: what new values must leave so that spilled objects can be reloaded. While memory is full, an object
// takes the place of another one: one with a copy on disk, or one that the spill quota has room for. If new values used
// up both, what is on disk could not be read until something was deleted. So enough is kept for the largest of it.
//
//   size of the largest spilled object: unknown ──measured──▶ exact ──some spilled object leaves the disk──▶ upper bound
//                                                               ▲                                               │
//                                                               └────measured, because the bound refuses────────┘
#pragma once

#include <cstdint>

#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ReloadReserve {
 public:
  // Both must outlive it.
  ReloadReserve(const ObjectCatalog& catalog, const BlobTable& blobs) : catalog_(&catalog), blobs_(&blobs) {}

  void begin_turn();  // notices what was deleted or reloaded since the last turn
  // Call after evictions, with the size of the largest object that went, and by how much they raised
  // BlobTable::spilled_bytes().
  void evicted(std::uint64_t largest, std::uint64_t spilled_more);
  // Whether objects of `bytes` in all, of which the largest has `largest`, may be evicted for new values, if
  // `exchangeable` bytes are clean or can be written.
  [[nodiscard]] bool allows(std::uint64_t bytes, std::uint64_t largest, std::uint64_t exchangeable);

 private:
  enum class Knowledge : std::uint8_t { kUnknown, kExact, kUpperBound };

  [[nodiscard]] bool leaves_enough(std::uint64_t bytes, std::uint64_t largest, std::uint64_t exchangeable) const;
  void measure();

  const ObjectCatalog* catalog_;
  const BlobTable* blobs_;
  Knowledge knowledge_ = Knowledge::kUnknown;  // an earlier daemon's objects may be on disk
  std::uint64_t largest_ = 0;                  // bytes; see knowledge_
  std::uint64_t spilled_bytes_ = 0;            // at the last turn, and what was evicted since
};

}  // namespace entrepot
