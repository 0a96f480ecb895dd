// Objects that are being deleted: each is freed as soon as nobody pins it, at once or after a later scan.
//
//   `deleting` or `lost` ──one scan of all pin tables──┬─ not pinned: free
//                             ▲                        └─ pinned: deferred ─┐
//                             └──────────────── rescan ────────────────────┘
//
//   free: slot (generation + 1) -> reference counts of its blobs -> record
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/pins.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"

namespace entrepot {

// Guarded by the daemon's thread.
class DeferredFrees {
 public:
  DeferredFrees(ObjectCatalog& catalog, BlobTable& blobs, const PinScanner& pins);  // all must outlive this

  void free_or_defer(std::vector<PinTarget> victims);  // unlinked objects; with one scan for all
  void defer(std::uint32_t slot) { deferred_.push_back(catalog_->target(slot)); }  // until the next rescan at least
  bool rescan();  // frees what is no longer pinned; returns whether that was anything

  [[nodiscard]] std::size_t count() const { return deferred_.size(); }
  [[nodiscard]] std::uint64_t payload_bytes() const;

 private:
  void free_object(std::uint32_t slot);

  ObjectCatalog* catalog_;
  BlobTable* blobs_;
  const PinScanner* pins_;
  std::vector<PinTarget> deferred_;
};

}  // namespace entrepot
