// Loader: reads spilled objects back into memory.
//
//   an object: spilled ─┬─load────────▶ requested ─┬─ranges for all its blobs──▶ being read ──▶ resident, failed, lost
//                       └─load_ahead──▶ ahead ─────┘
//                                       ahead ─┬─load─────▶ requested
//                                              └─no room──▶ spilled
//
// Requested loads get memory in the order of the requests: none overtakes another. Loads ahead of a request come after
// them, and hold no memory while a requested one waits. Nothing here blocks: reads end with completions, waiting
// requests are kept by the store, and `changed` notifies it when an object is resident or its load has failed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/id.h"
#include "base/status.h"
#include "spill/backend.h"
#include "store/memory/segment_pool.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/object/object_residency.h"
#include "store/paging/eviction_candidates.h"
#include "store/paging/transfer_rate.h"
#include "store/types.h"

namespace entrepot {

struct LoaderStats {
  std::uint64_t loads = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t prefetches = 0;  // of `loads`: before they were requested
  std::uint64_t failed_reads = 0;
};

struct LoaderDeps {  // all must outlive the loader
  const ObjectCatalog& catalog;
  BlobTable& blobs;
  ObjectResidency& residency;
  SegmentPool& pool;
  EvictionCandidates& candidates;
  const Clock& clock;
  SpillBackend* spill = nullptr;  // null: every load fails
  // Makes memory available for a load, or one ahead of a request. Returns whether any was freed.
  std::function<bool(std::uint64_t bytes, bool ahead)> make_room;
};

// Guarded by the daemon's thread.
class Loader {
 public:
  using Changed = std::function<void(const IdBytes&)>;

  explicit Loader(const LoaderDeps& deps) : deps_(deps) {}
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();
  void on_changed(Changed changed) { changed_ = std::move(changed); }

  // Loads the object for somebody who waits for it; no effect if it is resident or already requested.
  void load(std::uint32_t slot);
  // Loads an object that nobody has requested, if that takes no memory from anybody who needs it.
  enum class Ahead : std::uint8_t {
    kLoading,  // it is being loaded
    kNoRoom,   // it was forgotten
    kWaiting,  // for a segment that is being made: repeat the call
  };
  [[nodiscard]] Ahead load_ahead(std::uint32_t slot);
  // Forgets the loads ahead of a request that wait for memory, except those of the slots in `kept`.
  void cancel_waiting_ahead(const std::unordered_set<std::uint32_t>& kept);
  void try_waiting();  // starts the requested loads that fit now
  void object_ended(std::uint32_t slot);
  void provision_failed(std::uint32_t segment);  // a load may be waiting for it
  void complete(const SpillCompletion& done);    // the end of a read; ignores tickets that it did not issue

  [[nodiscard]] bool is_loading(std::uint32_t slot) const { return loads_.contains(slot); }
  [[nodiscard]] bool is_idle() const { return reads_.empty(); }
  [[nodiscard]] bool has_waiting() const { return !queue_.empty(); }  // requested ones
  [[nodiscard]] std::uint64_t bytes_ahead() const { return bytes_ahead_; }
  // Returns why the last load of the object failed, and clears it.
  [[nodiscard]] Status take_failure(const IdBytes& id);
  [[nodiscard]] double ns_per_byte() const { return rate_.ns_per_byte(); }
  [[nodiscard]] const LoaderStats& stats() const { return stats_; }

 private:
  struct Read {
    BlobRef blob;  // stays while it is read, whatever happens to its objects
    BlobLocation place;
    bool ahead = false;  // as it was started
  };
  struct Load {
    std::map<std::uint32_t, BlobLocation> places;  // taken from the pool, reads not started
    LeaseWait wait;
    bool waiting = true;  // for memory
    bool ahead = false;   // nobody has requested it yet: not in the queue
  };

  [[nodiscard]] bool allocate_all(std::uint32_t slot, Load& load);
  void begin_reads(std::uint32_t slot, Load& load);
  void on_loaded(std::uint32_t blob, const BlobLocation& place);
  void on_read_failed(std::uint32_t blob, const Status& why);
  void fail_load(std::uint32_t slot, const Status& why);
  void drop_load(std::uint32_t slot);
  void notify_changed(const IdBytes& id) const;

  LoaderDeps deps_;
  Changed changed_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Read> reads_;  // in progress, by ticket
  std::unordered_set<std::uint32_t> blobs_;        // of `reads_`
  std::uint64_t bytes_ahead_ = 0;                  // of `reads_`: started ahead of a request
  std::unordered_map<std::uint32_t, Load> loads_;  // by slot
  std::deque<std::uint32_t> queue_;                // requested loads that wait for memory, in order
  std::map<IdBytes, Status> failures_;             // not yet reported
  TransferRate rate_;
  LoaderStats stats_;
};

}  // namespace entrepot
