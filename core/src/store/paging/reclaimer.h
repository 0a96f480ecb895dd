// Reclaimer: makes room in memory, for new values and for loads. Of the objects whose absence costs least, in order:
//
//   a candidate: ─┬─dead────────────────────▶ removed
//                 ├─cheaper to recompute────▶ dropped
//                 ├─clean───────────────────▶ evicted
//                 └─dirty──▶ being written ─┬─more room is needed──▶ evicted, as a clean one
//                                           └─it is not────────────▶ clean, and stays
//
// Passed over are objects that would not fit into the rest of the spill quota, and for new values also those that the
// reload reserve keeps. If none of these helps: other clean objects, however much their absence costs; then recomputable
// ones, at any cost.
//
//   write-back: off ──dirty memory above the high mark──▶ on ──what is not being written below the low mark──▶ off
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "store/memory/segment_pool.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/object/object_residency.h"
#include "store/object/object_table.h"
#include "store/paging/eviction_candidates.h"
#include "store/paging/loader.h"
#include "store/paging/prefetcher.h"
#include "store/paging/reload_reserve.h"
#include "store/paging/spill_writer.h"
#include "store/types.h"

namespace entrepot {

struct ReclaimerStats {
  std::uint64_t evictions = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t dropped_dead = 0;  // dead objects, deleted without being written
  std::uint64_t dropped = 0;       // recomputable objects, dropped instead of written
  std::uint64_t dropped_bytes = 0;
};

struct ReclaimerDeps {  // all must outlive the reclaimer
  const ObjectCatalog& catalog;
  const BlobTable& blobs;
  ObjectTable& objects;
  ObjectResidency& residency;
  const SegmentPool& pool;
  EvictionCandidates& candidates;
  SpillWriter& writer;
  const Loader& loader;
  Prefetcher& prefetcher;
  const Clock& clock;
  bool spills = false;              // if not, objects can only be removed or dropped
  std::uint32_t high_percent = 80;  // of the memory: see StoreOptions::spill_high_percent
  std::uint32_t low_percent = 70;
};

// Guarded by the daemon's thread.
class Reclaimer {
 public:
  explicit Reclaimer(const ReclaimerDeps& deps) : deps_(deps), reserve_(deps.catalog, deps.blobs) {}

  // Makes memory available for new values or a load: evicts clean objects, starts writing dirty ones. Returns whether
  // any memory was freed.
  enum class Purpose : std::uint8_t { kNew, kLoad, kPrefetch };
  bool reclaim(std::uint64_t bytes, Purpose purpose);
  // Writes the object if it has no copy yet, and frees its memory. kInvalidArgument without a spill backend.
  [[nodiscard]] Status evict(std::uint32_t slot);

  void begin_turn();  // call before anything else of a turn of pending work
  void on_written(const SpillWriter::Written& written);
  void retry_evictions();  // those on request whose write failed
  void write_back();       // writes copies ahead of demand, if memory is short

  [[nodiscard]] std::uint64_t spillable_bytes() const;  // resident and not pinned
  // Whether the last reclaim() passed over objects because of the spill quota.
  [[nodiscard]] bool is_short_of_quota() const { return short_of_quota_; }
  [[nodiscard]] const ReclaimerStats& stats() const { return stats_; }

 private:
  using Slots = std::vector<std::uint32_t>;
  using SlotSet = std::unordered_set<std::uint32_t>;

  struct Round {  // one call of reclaim()
    std::uint64_t bytes = 0;
    Purpose purpose = Purpose::kNew;
    SlotSet pinned;
    std::uint64_t quota_left = 0;
    std::uint64_t exchangeable = 0;  // bytes that are clean or that may be written
  };

  [[nodiscard]] bool may_leave(std::uint32_t slot, const SlotSet& pinned) const;
  [[nodiscard]] bool helps(std::uint32_t slot, const Round& round);
  [[nodiscard]] Slots find_victims(const Round& round);
  [[nodiscard]] bool write_dirty(const Slots& victims, const Round& round);
  [[nodiscard]] bool evict_clean(const Slots& slots, const Round& round);
  [[nodiscard]] bool evict_others(const Slots& tried, const Round& round);
  std::uint64_t evict_slots(const Slots& slots);  // returns bytes freed
  [[nodiscard]] std::uint64_t dirty_bytes() const;
  // Recomputable objects are those whose writer declared a recompute time (SlotHints::recompute); nothing else is
  // dropped unless it is dead.
  [[nodiscard]] bool is_droppable(std::uint32_t slot) const;
  bool remove_dead(std::uint32_t slot);      // without writing it; returns whether it was dead
  bool drop_if_cheaper(std::uint32_t slot);  // if that is expected to cost less than writing it
  bool drop(std::uint32_t slot);             // if it is recomputable
  bool drop_at_any_cost(const Round& round);

  ReclaimerDeps deps_;
  ReloadReserve reserve_;
  bool short_of_quota_ = false;
  bool writes_back_ = false;
  std::uint64_t next_write_back_ns_ = 0;
  ReclaimerStats stats_;
};

}  // namespace entrepot
