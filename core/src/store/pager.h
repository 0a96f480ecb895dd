// The pager: which objects are in memory. It copies cold ones to cold storage in the background, gives their memory to
// whoever needs it, and brings them back when somebody asks.
//
//   a blob:    resident ──write──▶ resident and being written ──done──▶ clean ──evict──▶ spilled ──read──▶ clean
//              resident ──drop──▶ gone, if its object can be made again and that is expected to cost less
//   an object: a load waits for memory ──all of its blobs have ranges──▶ being read ──▶ resident, or failed, or lost
//
// Nothing waits in here and nothing blocks: I/O ends by completions, waiting requests live in the store, which is told
// by `changed` when it is worth looking at an object again. Objects whose payload is in their record stay in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/eviction.h"
#include "store/objects.h"
#include "store/read_ahead.h"
#include "store/transfer_rate.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Pager : public ResidencyListener {
 public:
  using Changed = std::function<void(const IdBytes&)>;

  // `cold` null: nothing ever leaves memory, and all wishes are in vain.
  Pager(ObjectTable& objects, SegmentPool& pool, PinScanner& pins, const SetTable& sets, ColdStorage* cold,
        const Clock& clock, const StoreOptions& options);
  void on_changed(Changed changed) { changed_ = std::move(changed); }

  void adopted();                   // after the objects are
  void follow(std::uint32_t slot);  // reads of it may be part of a run; for what adopted() did not find

  void object_sealed(std::uint32_t slot) override;
  void object_ended(std::uint32_t slot) override;

  void hints_changed(std::uint32_t slot);  // Slot::hints or its locality set
  void define_set(std::uint32_t number, const SetAttributes& attributes) { policy_.define(number, attributes); }
  void undefine_set(std::uint32_t number) { policy_.undefine(number); }

  // Brings the object back for a reader (0: nobody in particular); nothing if it is resident or on its way.
  void load(std::uint32_t slot, std::uint32_t reader = 0);
  [[nodiscard]] bool is_loading(std::uint32_t slot) const { return loads_.contains(slot); }
  // Why the last load of the object failed; asked once.
  [[nodiscard]] Status take_failure(const IdBytes& id);
  // Writes the object out if it has no copy yet, and gives its memory back. kInvalidArgument without cold storage.
  [[nodiscard]] Status evict(std::uint32_t slot);

  // Memory is needed, for new values or to bring one back: evicts what is clean, begins to write what is not. Whether
  // memory came free.
  enum class Purpose : std::uint8_t { kNew, kLoad, kAhead };
  bool reclaim(std::uint64_t bytes, Purpose purpose);
  // I/O is under way after which there may be more memory.
  [[nodiscard]] bool is_working() const { return !writes_.empty() || !reads_.empty(); }
  [[nodiscard]] bool has_work() const { return !queue_.empty(); }

  void note_reads();  // what clients got since the last time, for the policy
  void take_completions();
  void provision_failed(std::uint32_t segment);  // a load may wait for it
  void work();  // loads that wait for memory; copies ahead of demand; loads ahead of readers
  // While somebody reads in order, reads of what is resident are noticed by looking. UINT64_MAX: nobody does.
  [[nodiscard]] std::uint64_t next_look_ns() const { return next_look_ns_; }

  [[nodiscard]] bool enabled() const { return cold_ != nullptr; }
  [[nodiscard]] std::uint64_t spillable_bytes() const;  // resident, not pinned
  // What cannot leave memory whatever else goes, in pager_room.cpp. Each blob counts once.
  struct Immovable {
    std::uint64_t own = 0;     // pinned by the client that asks
    std::uint64_t others = 0;  // pinned by others alone
    std::uint64_t kept = 0;    // a user wants it in memory, and nobody pins it
  };
  [[nodiscard]] Immovable immovable(std::uint32_t client) const;
  [[nodiscard]] ColdFigures cold_figures() const { return cold_ == nullptr ? ColdFigures{} : cold_->figures(); }
  struct Figures {
    std::uint64_t evictions = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t dropped_dead = 0;  // objects that nobody needed, without being written
    std::uint64_t dropped = 0;       // objects that can be made again, instead of being written
    std::uint64_t dropped_bytes = 0;
    std::uint64_t loads = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t loads_ahead = 0;  // of these, before anybody asked
    std::uint64_t failed_writes = 0;
    std::uint64_t failed_reads = 0;
  };
  [[nodiscard]] const Figures& figures() const { return figures_; }
  [[nodiscard]] EvictionPolicy& policy() { return policy_; }
  [[nodiscard]] const EvictionPolicy& policy() const { return policy_; }

 private:
  struct Write {
    std::uint32_t blob = 0;
    std::uint64_t bytes = 0;
  };
  struct Read {
    std::uint32_t blob = 0;
    BlobPlace place;
    bool ahead = false;  // as it was begun
  };
  struct Load {
    std::uint32_t generation = 0;
    std::map<std::uint32_t, BlobPlace> places;  // taken from the pool, their reads not begun
    LeaseWait wait;
    bool queued = true;
    bool ahead = false;  // nobody has asked for it yet: not in the queue
  };

  [[nodiscard]] bool is_held(std::uint32_t slot) const;
  void begin_writes(std::uint32_t slot);
  [[nodiscard]] bool is_being_written(std::uint32_t slot) const;
  [[nodiscard]] bool evict_clean(const std::vector<std::uint32_t>& slots, std::uint64_t enough, Purpose purpose);
  [[nodiscard]] std::uint64_t exchangeable_bytes() const;
  std::uint64_t move_out(const std::vector<std::uint32_t>& slots);  // bytes of memory that came free
  void written(const Write& write, const SpillCompletion& done);
  void read_done(const Read& read, const SpillCompletion& done);
  void arrived(std::uint32_t blob, const BlobPlace& place);
  void read_failed(std::uint32_t blob, const Status& why);
  void try_loads();
  [[nodiscard]] bool place_all(std::uint32_t slot, Load& load);
  void used(std::uint32_t slot, std::uint32_t reader);
  void look_at_readers();
  void load_ahead();
  [[nodiscard]] bool may_load_ahead(std::uint32_t slot) const;
  [[nodiscard]] bool begin_ahead(std::uint32_t slot);
  void drop_waiting_ahead();
  [[nodiscard]] std::vector<std::uint32_t> find_victims(std::uint64_t bytes, Purpose purpose,
                                                        const std::unordered_set<std::uint32_t>& pinned) const;
  void begin_reads(std::uint32_t slot, Load& load);
  void fail(std::uint32_t slot, const Status& why);
  void drop_load(std::uint32_t slot);
  void write_ahead();
  void admit(std::uint32_t slot);
  bool drop_dead(std::uint32_t slot);  // without writing it; whether it was dead
  // --- in pager_drops.cpp
  [[nodiscard]] bool may_drop(std::uint32_t slot) const;
  bool drop_cheaper(std::uint32_t slot);  // if that is expected to cost less than writing it
  bool drop(std::uint32_t slot);          // if it can be made again
  bool drop_unwritten(std::uint64_t bytes, const std::unordered_set<std::uint32_t>& pinned);
  [[nodiscard]] bool takes_writes() const;
  void measured();
  void tell(const IdBytes& id) const;
  [[nodiscard]] std::unordered_set<std::uint32_t> pinned_slots() const;
  [[nodiscard]] std::uint64_t dirty_bytes() const;

  ObjectTable* objects_;
  SegmentPool* pool_;
  PinScanner* pins_;
  const SetTable* sets_;
  ColdStorage* cold_;
  const Clock* clock_;
  StoreOptions options_;
  Changed changed_;
  EvictionPolicy policy_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Write> writes_;  // by ticket
  std::unordered_map<std::uint64_t, Read> reads_;    // by ticket
  std::unordered_set<std::uint32_t> blobs_written_;  // being written just now
  std::unordered_set<std::uint32_t> blobs_read_;     // being read just now
  std::uint64_t writing_bytes_ = 0;
  std::unordered_map<std::uint32_t, Load> loads_;  // by slot
  std::deque<std::uint32_t> queue_;                // slots of loads that wait for memory, first come first served
  std::unordered_map<std::uint32_t, std::uint64_t> held_until_;  // slots just loaded: not evicted before
  std::unordered_set<std::uint32_t> leave_;                      // slots to evict as soon as they are clean
  std::unordered_set<std::uint32_t> kept_;                       // slots that their users pinned to memory
  ReadAhead read_ahead_;
  std::unordered_set<std::uint32_t> ahead_;  // slots that a run of reads comes to next: not evicted before, if possible
  std::uint64_t ahead_bytes_ = 0;            // of loads ahead that are being read
  bool ahead_stale_ = false;                 // something happened that load_ahead() depends on
  std::uint64_t next_look_ns_ = UINT64_MAX;
  std::uint64_t look_every_ns_ = 0;
  std::map<IdBytes, Status> failures_;
  std::uint64_t largest_out_ = 0;  // of the objects that left memory since none was out
  bool writing_ahead_ = false;
  bool write_failing_ = false;  // since the last write that went well
  std::uint64_t next_write_ahead_ns_ = 0;
  TransferRate write_rate_;
  TransferRate read_rate_;
  std::uint64_t retry_writes_ns_ = 0;
  Figures figures_;
};

}  // namespace entrepot
