// Memory that seemed free after an adoption, but may still be read.
//
// Damaged entries do not say where their bytes were, and may not even show that an object existed. A client that pins
// one still reads them, so all memory that seems free is withheld until those pins are gone.
//
//   reusable ──withhold, if anybody pins what is damaged or unknown──▶ withheld ──release, once nobody does──▶ reusable
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shm/pins.h"
#include "shm/record_arena.h"
#include "store/memory/segment_pool.h"
#include "store/object/object_catalog.h"

namespace entrepot {

// Guarded by the daemon's thread.
class WithheldMemory {
 public:
  // All four must outlive this.
  WithheldMemory(const ObjectCatalog& catalog, const PinScanner& pins, RecordArena& records, SegmentPool& pool);

  // At most once, when all objects were adopted. `damaged`: slots in state `lost`. Withholds the records' memory; the
  // caller does the same for the segments (SegmentPool::adopt_end).
  void withhold(std::span<const std::uint32_t> damaged);
  bool release();  // if nobody pins what was unexplained; returns whether memory was released
  [[nodiscard]] bool is_withholding() const { return !unexplained_.empty(); }

 private:
  const ObjectCatalog* catalog_;
  const PinScanner* pins_;
  RecordArena* records_;
  SegmentPool* pool_;
  std::vector<PinTarget> unexplained_;  // pinned during adoption, or damaged; empty: no memory is withheld
};

}  // namespace entrepot
