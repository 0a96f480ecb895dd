// Pager: decides which objects are in memory. It copies cold objects to the spill backend in the background, gives
// their memory to those who need it, and reloads them on demand.
//
//   a blob:    resident ─┬─write──▶ resident, being written ──done──▶ clean ──evict──▶ spilled ──read──▶ clean
//                        └─drop──▶ gone, if its object is recomputable and that is expected to cost less
//   an object: load waits for memory ──ranges for all its blobs──▶ being read ──▶ resident, failed or lost
//
// Nothing here blocks: I/O ends with completions, and waiting requests are kept by the store; `changed` notifies it
// when the state of an object has changed. Objects whose payload is in their record stay in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/eviction/eviction_policy.h"
#include "store/object/object_parts.h"
#include "store/object/object_residency.h"
#include "store/object/object_table.h"
#include "store/paging/read_ahead.h"
#include "store/paging/transfer_rate.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Pager : public ResidencyListener {
 public:
  using Changed = std::function<void(const IdBytes&)>;

  // `spill` null: nothing ever leaves memory, and requests to do so fail.
  Pager(ObjectParts& parts, ObjectTable& objects, ObjectResidency& residency, SegmentPool& pool, PinScanner& pins,
        const LocalitySetTable& sets, SpillBackend* spill, const Clock& clock, const StoreOptions& options);
  void on_changed(Changed changed) { changed_ = std::move(changed); }

  void on_adopted();               // call after the objects were adopted
  void track(std::uint32_t slot);  // makes it a candidate for read-ahead; for objects that on_adopted() did not see

  void object_sealed(std::uint32_t slot) override;
  void object_ended(std::uint32_t slot) override;

  void hints_changed(std::uint32_t slot);  // Slot::hints or its locality set
  void define_set(std::uint32_t number, const SetAttributes& attributes) { policy_.define(number, attributes); }
  void undefine_set(std::uint32_t number) { policy_.undefine(number); }

  // Loads the object for a reader (0: none in particular); no effect if it is resident or being loaded.
  void load(std::uint32_t slot, std::uint32_t reader = 0);
  [[nodiscard]] bool is_loading(std::uint32_t slot) const { return loads_.contains(slot); }
  // Returns why the last load of the object failed, and clears it.
  [[nodiscard]] Status take_failure(const IdBytes& id);
  // Writes the object if it has no copy yet, and frees its memory. kInvalidArgument without a spill backend.
  [[nodiscard]] Status evict(std::uint32_t slot);

  // Makes memory available for new values or a load: evicts clean objects, starts writing dirty ones. Returns whether
  // any memory was freed.
  enum class Purpose : std::uint8_t { kNew, kLoad, kPrefetch };
  bool reclaim(std::uint64_t bytes, Purpose purpose);
  // Whether I/O is in progress that may free memory.
  [[nodiscard]] bool has_io_in_progress() const { return !writes_.empty() || !reads_.empty(); }
  [[nodiscard]] bool has_queued_loads() const { return !queue_.empty(); }

  void apply_read_log();  // passes clients' reads since the last call to the policy
  void take_completions();
  void provision_failed(std::uint32_t segment);  // a load may be waiting for it
  void run_pending();                            // runs pending loads, background writes and read-ahead
  // While somebody reads sequentially, reads of resident objects are polled for. UINT64_MAX: no polling.
  [[nodiscard]] std::uint64_t next_poll_ns() const { return next_poll_ns_; }

  [[nodiscard]] bool enabled() const { return spill_ != nullptr; }
  [[nodiscard]] std::uint64_t spillable_bytes() const;  // resident and not pinned
  // Memory that cannot be freed whatever else is evicted, in immovable_memory.cpp. Each blob counts once.
  struct Immovable {
    std::uint64_t own = 0;          // pinned by the requesting client
    std::uint64_t others = 0;       // pinned only by other clients
    std::uint64_t user_pinned = 0;  // kept in memory by a user's hint, and not pinned by any client
  };
  [[nodiscard]] Immovable immovable(std::uint32_t client) const;
  [[nodiscard]] SpillStats spill_stats() const { return spill_ == nullptr ? SpillStats{} : spill_->stats(); }
  struct Stats {
    std::uint64_t evictions = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t dropped_dead = 0;  // dead objects, deleted without being written
    std::uint64_t dropped = 0;       // recomputable objects, dropped instead of written
    std::uint64_t dropped_bytes = 0;
    std::uint64_t loads = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t prefetches = 0;  // of `loads`: before they were requested
    std::uint64_t failed_writes = 0;
    std::uint64_t failed_reads = 0;
  };
  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] EvictionPolicy& policy() { return policy_; }
  [[nodiscard]] const EvictionPolicy& policy() const { return policy_; }

 private:
  struct Write {
    std::uint32_t blob = 0;
    std::uint64_t bytes = 0;
  };
  struct Read {
    std::uint32_t blob = 0;
    BlobLocation place;
    bool is_prefetch = false;  // as it was started
  };
  struct Load {
    std::uint32_t generation = 0;
    std::map<std::uint32_t, BlobLocation> places;  // taken from the pool, reads not started
    LeaseWait wait;
    bool queued = true;
    bool is_prefetch = false;  // read-ahead that nobody has requested yet: not in the queue
  };

  [[nodiscard]] bool is_eviction_blocked(std::uint32_t slot) const;
  void begin_writes(std::uint32_t slot);
  [[nodiscard]] bool is_being_written(std::uint32_t slot) const;
  [[nodiscard]] bool evict_clean(const std::vector<std::uint32_t>& slots, std::uint64_t enough, Purpose purpose);
  [[nodiscard]] std::uint64_t exchangeable_bytes() const;
  std::uint64_t evict_slots(const std::vector<std::uint32_t>& slots);  // returns bytes freed
  void on_written(const Write& write, const SpillCompletion& done);
  void on_read_done(const Read& read, const SpillCompletion& done);
  void on_loaded(std::uint32_t blob, const BlobLocation& place);
  void on_read_failed(std::uint32_t blob, const Status& why);
  void try_loads();
  [[nodiscard]] bool allocate_all(std::uint32_t slot, Load& load);
  void record_use(std::uint32_t slot, std::uint32_t reader);
  void poll_readers();
  void start_prefetches();
  [[nodiscard]] bool may_prefetch(std::uint32_t slot) const;
  [[nodiscard]] bool begin_prefetch(std::uint32_t slot);
  void cancel_queued_prefetches();
  [[nodiscard]] std::vector<std::uint32_t> find_victims(std::uint64_t bytes, Purpose purpose,
                                                        const std::unordered_set<std::uint32_t>& pinned) const;
  void begin_reads(std::uint32_t slot, Load& load);
  void fail_load(std::uint32_t slot, const Status& why);
  void drop_load(std::uint32_t slot);
  void write_back();
  void admit(std::uint32_t slot);
  bool drop_dead(std::uint32_t slot);  // deletes it without writing; returns whether it was dead
  // --- in recomputable_drops.cpp
  [[nodiscard]] bool is_droppable(std::uint32_t slot) const;
  bool drop_if_cheaper(std::uint32_t slot);  // if that is expected to cost less than writing it
  bool drop(std::uint32_t slot);             // if it is recomputable
  bool drop_recomputable(std::uint64_t bytes, const std::unordered_set<std::uint32_t>& pinned);
  [[nodiscard]] bool can_write() const;
  void update_measured_costs();
  void notify_changed(const IdBytes& id) const;
  [[nodiscard]] std::unordered_set<std::uint32_t> pinned_slots() const;
  [[nodiscard]] std::uint64_t dirty_bytes() const;

  const ObjectCatalog* catalog_;
  BlobTable* blobs_;
  ObjectManifest* manifest_;
  ObjectTable* objects_;
  ObjectResidency* residency_;
  SegmentPool* pool_;
  PinScanner* pins_;
  const LocalitySetTable* sets_;
  SpillBackend* spill_;
  const Clock* clock_;
  StoreOptions options_;
  Changed changed_;
  EvictionPolicy policy_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Write> writes_;  // by ticket
  std::unordered_map<std::uint64_t, Read> reads_;    // by ticket
  std::unordered_set<std::uint32_t> blobs_written_;  // writes in progress
  std::unordered_set<std::uint32_t> blobs_read_;     // reads in progress
  std::uint64_t writing_bytes_ = 0;
  std::unordered_map<std::uint32_t, Load> loads_;                    // by slot
  std::deque<std::uint32_t> queue_;                                  // loads that wait for memory, in order
  std::unordered_map<std::uint32_t, std::uint64_t> no_evict_until_;  // recently loaded: not evicted before that time
  std::unordered_set<std::uint32_t> evict_when_clean_;               // slots to evict as soon as they are clean
  std::unordered_set<std::uint32_t> user_pinned_;                    // slots that users pinned to memory
  ReadAhead read_ahead_;
  std::unordered_set<std::uint32_t> prefetch_targets_;  // slots next in a sequential run: evicted only as a last resort
  std::uint64_t prefetch_bytes_ = 0;                    // of read-ahead in progress
  bool prefetch_stale_ = false;                         // an input of start_prefetches() changed
  std::uint64_t next_poll_ns_ = UINT64_MAX;
  std::uint64_t poll_interval_ns_ = 0;
  std::map<IdBytes, Status> failures_;
  std::uint64_t largest_spilled_ = 0;  // largest object evicted since none was spilled
  bool background_writeback_ = false;
  bool write_failing_ = false;  // since the last successful write
  std::uint64_t next_writeback_ns_ = 0;
  TransferRate write_rate_;
  TransferRate read_rate_;
  std::uint64_t retry_writes_ns_ = 0;
  Stats stats_;
};

}  // namespace entrepot
