// Prefetcher: loads what readers will request next, within limits, after all requested loads, and only into memory that
// nobody needs.
//
//   an object: spilled ──next on a run──▶ target ─┬─loaded ahead─────────▶ resident, evicted only as a last resort
//                                                 └─no run leads to it───▶ spilled
//   reads of resident objects: not polled ──a run is active──▶ polled, less and less often ──a step──▶ polled often
//                                   ▲                                      │
//                                   └──no active run, or nothing spilled───┘
//
// ReadAhead predicts; this class passes it what is read, and asks the loader for what it predicts.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "shm/pins.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/paging/eviction_candidates.h"
#include "store/paging/loader.h"
#include "store/paging/read_ahead.h"
#include "store/paging/spill_writer.h"
#include "store/session/locality_set_table.h"
#include "store/types.h"

namespace entrepot {

struct PrefetcherDeps {  // all must outlive the prefetcher
  const ObjectCatalog& catalog;
  const BlobTable& blobs;
  const LocalitySetTable& sets;
  PinScanner& pins;
  EvictionCandidates& candidates;
  const SpillWriter& writer;
  Loader& loader;
  const Clock& clock;
  std::uint64_t capacity_bytes = 0;
};

// Guarded by the daemon's thread.
class Prefetcher {
 public:
  explicit Prefetcher(const PrefetcherDeps& deps) : deps_(deps) {}

  void track(std::uint32_t slot);         // may be predicted from now on; no effect if it has no blobs
  void object_ended(std::uint32_t slot);  // no effect if it was not tracked
  void trim_slots(std::uint32_t end) { read_ahead_.trim_slots(end); }  // see there
  void set_changed(std::uint32_t slot);                                // its locality set; the same
  // Somebody reads or requests the object. Reader 0: nobody in particular.
  void was_used(std::uint32_t slot, std::uint32_t reader);
  // Passes clients' reads of resident objects since the last call to the eviction policy and to read-ahead.
  void apply_read_log();

  void poll();                             // applies the read log, if that is due
  void on_io_done() { is_stale_ = true; }  // there may be room for more
  void run();                              // starts loads of what comes next, if anything changed
  // While somebody reads sequentially, reads of resident objects are polled for. UINT64_MAX: no polling.
  [[nodiscard]] std::uint64_t next_poll_ns() const { return next_poll_ns_; }

  [[nodiscard]] bool is_target(std::uint32_t slot) const { return targets_.contains(slot); }
  [[nodiscard]] bool has_targets() const { return !targets_.empty(); }

 private:
  [[nodiscard]] bool may_load(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t policy_number(std::uint32_t slot) const;

  PrefetcherDeps deps_;
  ReadAhead read_ahead_;
  std::unordered_set<std::uint32_t> targets_;  // slots next on a run, resident or not
  bool is_stale_ = false;                      // an input of run() changed
  std::uint64_t next_poll_ns_ = UINT64_MAX;
  std::uint64_t poll_interval_ns_ = 0;
};

}  // namespace entrepot
