// Pager: decides which objects are in memory. It copies cold objects to the spill backend in the background, gives
// their memory to those who need it, and reloads them on demand.
//
//   a blob: resident ─┬─write──▶ resident, being written ──done──▶ clean ──evict──▶ spilled ──read──▶ clean
//                     └─drop──▶ gone, if its object is recomputable and that is expected to cost less
//
// This class only passes each event to those of its parts that it concerns:
//
//   EvictionCandidates  which objects may leave memory, and in which order
//   SpillWriter         writes copies
//   Loader              reads them back
//   Prefetcher          predicts loads, and starts them early
//   Reclaimer           makes room: removes, drops, evicts or writes, whichever comes first
//
// Each uses only those above it, except that the loader asks for room. Nothing here blocks: I/O ends with completions.
// Objects whose payload is in their record stay in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "shm/pins.h"
#include "spill/backend.h"
#include "store/eviction/eviction_policy.h"
#include "store/memory/segment_pool.h"
#include "store/object/object_parts.h"
#include "store/object/object_residency.h"
#include "store/object/object_table.h"
#include "store/paging/eviction_candidates.h"
#include "store/paging/immovable_memory.h"
#include "store/paging/loader.h"
#include "store/paging/prefetcher.h"
#include "store/paging/reclaimer.h"
#include "store/paging/spill_writer.h"
#include "store/session/locality_set_table.h"
#include "store/types.h"

namespace entrepot {

struct PagerDeps {  // all must outlive the pager
  ObjectParts& parts;
  ObjectTable& objects;
  ObjectResidency& residency;
  SegmentPool& pool;
  PinScanner& pins;
  const LocalitySetTable& sets;
  const Clock& clock;
  const StoreOptions& options;
  SpillBackend* spill = nullptr;  // null: nothing ever leaves memory unless it is dropped, and requests to do so fail
};

// Guarded by the daemon's thread.
class Pager : public ResidencyListener {
 public:
  using Purpose = Reclaimer::Purpose;
  struct Stats : ReclaimerStats, LoaderStats {
    std::uint64_t failed_writes = 0;
  };

  explicit Pager(const PagerDeps& deps);
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Called when the state of an object that was to be loaded has changed.
  void on_changed(Loader::Changed changed) { loader_.on_changed(std::move(changed)); }

  // --- objects
  void on_adopted();               // call after the objects were adopted
  void track(std::uint32_t slot);  // makes it a candidate for read-ahead; for objects that on_adopted() did not see
  void object_sealed(std::uint32_t slot) override;
  void object_ended(std::uint32_t slot) override;
  void hints_changed(std::uint32_t slot);  // Slot::hints or its locality set
  void trim_slots(std::uint32_t end) { prefetcher_.trim_slots(end); }
  void define_set(std::uint32_t number, const SetAttributes& attributes) { policy().define(number, attributes); }
  void undefine_set(std::uint32_t number) { policy().undefine(number); }

  // --- requests
  // Loads the object for a reader (0: none in particular); no effect if it is resident or being loaded.
  void load(std::uint32_t slot, std::uint32_t reader = 0);
  [[nodiscard]] Status take_failure(const IdBytes& id) { return loader_.take_failure(id); }
  [[nodiscard]] Status evict(std::uint32_t slot) { return reclaimer_.evict(slot); }
  bool reclaim(std::uint64_t bytes, Purpose purpose) { return reclaimer_.reclaim(bytes, purpose); }

  // --- events
  void apply_read_log() { prefetcher_.apply_read_log(); }
  void take_completions();
  void provision_failed(std::uint32_t segment) { loader_.provision_failed(segment); }
  void run_pending();  // runs pending loads, background writes and read-ahead
  // When run_pending() is due although nothing happened. UINT64_MAX: never.
  [[nodiscard]] std::uint64_t next_poll_ns() const {
    return std::min(prefetcher_.next_poll_ns(), writer_.next_retry_ns());
  }

  // --- figures
  [[nodiscard]] bool enabled() const { return spill_ != nullptr; }
  [[nodiscard]] bool is_loading(std::uint32_t slot) const { return loader_.is_loading(slot); }
  [[nodiscard]] bool has_io_in_progress() const { return !writer_.is_idle() || !loader_.is_idle(); }
  // Whether memory that cannot be freed now may become free without anybody's doing: once it is written.
  [[nodiscard]] bool may_make_room() const {
    return enabled() &&
           (has_io_in_progress() || (writer_.can_write() && !is_short_of_quota() && spillable_bytes() != 0));
  }
  [[nodiscard]] bool is_short_of_quota() const { return reclaimer_.is_short_of_quota(); }
  [[nodiscard]] bool has_queued_loads() const { return loader_.has_waiting(); }
  [[nodiscard]] std::uint64_t spillable_bytes() const { return reclaimer_.spillable_bytes(); }
  [[nodiscard]] ImmovableMemory immovable(std::uint32_t client,
                                          const std::function<std::uint64_t(std::uint32_t blob)>& covered = {}) const;
  [[nodiscard]] SpillStats spill_stats() const { return spill_ == nullptr ? SpillStats{} : spill_->stats(); }
  [[nodiscard]] Stats stats() const { return {reclaimer_.stats(), loader_.stats(), writer_.failed_writes()}; }
  [[nodiscard]] EvictionPolicy& policy() { return candidates_.policy(); }
  [[nodiscard]] const EvictionPolicy& policy() const { return candidates_.policy(); }

 private:
  const ObjectCatalog* catalog_;
  const BlobTable* blobs_;
  const ObjectResidency* residency_;
  ObjectManifest* manifest_;
  const PinScanner* pins_;
  SpillBackend* spill_;
  EvictionCandidates candidates_;
  SpillWriter writer_;
  Loader loader_;
  Prefetcher prefetcher_;
  Reclaimer reclaimer_;
};

}  // namespace entrepot
