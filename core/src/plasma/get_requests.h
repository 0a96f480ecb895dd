// GetRequests: gets that wait, and the objects that are brought into the arena for them.
//
//   asked for ──in the arena──▶ held, answered with the others
//       └──not there──▶ missing ──sealed by a Plasma client──────────────▶ held
//                          ├──shown by the store's directory──▶ fetching ─┤
//                          ├──unasked: the daemon is silent, and asked in another thread; then one of these two
//                          └──time-out──▶ answered as not there
//   fetching ──in memory, in a segment for Plasma clients──▶ added in place
//            ├──elsewhere──▶ read back if it is on disk, copied into the arena──▶ added
//            ├──no memory, no answer──▶ missing; fetched again after a pause, as long as somebody waits
//            └──it is no value for Plasma clients, or is lost──▶ unusable: missing until the time-out
//
// An object that other clients of the store seal is noticed by looking into the directory, which is shared memory, while
// anybody waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "net/event_loop.h"
#include "plasma/arena_objects.h"
#include "plasma/store_worker.h"

namespace entrepot::plasma {

// Guarded by the front end's thread.
class GetRequests {
 public:
  struct Parts {
    EventLoop& loop;
    ArenaObjects& objects;
    StoreWorker& worker;
    std::function<ClientChannel*(ClientKey)> channel;  // null: it is gone
    std::function<void(ClientChannel&)> answered;      // the channel may go on
  };
  explicit GetRequests(Parts parts);

  void begin(ClientChannel& client, GetRequest request);
  void available(const IdBytes& id);  // it was sealed, or brought here
  void client_gone(ClientKey client) { waiting_.erase(client); }

 private:
  struct Waiting {
    std::vector<IdBytes> ids;
    std::unordered_set<IdBytes, IdHash> missing;
    std::unordered_set<IdBytes, IdHash> unusable;  // of these: in the store, but not to be had
    std::unordered_set<IdBytes, IdHash> unasked;   // of these: the daemon has not said whether the store has them
    bool waits_for_fetches = false;                // and for nothing else
    EventLoop::Timer deadline;
  };

  [[nodiscard]] bool take(ClientChannel& client, Waiting& waiting, const IdBytes& id);
  void answer_if_complete(ClientKey client, bool is_late = false);
  // What became of an object that was fetched. kDone: it is here, or not in the store any more; kLater: it may be had
  // when there is memory, or the daemon answers.
  enum class Fetched : std::uint8_t { kDone, kLater, kUnusable };
  struct Retry {
    std::uint64_t pause_ns = 0;
    std::uint64_t again_ns = 0;
  };

  void look();  // for missing objects, in the directory
  void ask();   // the daemon, about those that are unasked
  void answered(const std::vector<IdBytes>& ids, const Result<std::vector<bool>>& exist);
  [[nodiscard]] static Fetched outcome_of(const Status& failure);
  void fetch(const IdBytes& id);
  void place(const IdBytes& id, StoredObject stored);
  void bring_in_background(const IdBytes& id, StoredObject stored);
  void add(const IdBytes& id, const StoredObject& stored, Extent extent, bool is_in_place);
  void fetched(const IdBytes& id, Fetched outcome);

  Parts parts_;
  std::unordered_map<ClientKey, Waiting> waiting_;  // one a client: it waits for its reply
  std::unordered_set<IdBytes, IdHash> fetching_;
  std::unordered_map<IdBytes, Retry, IdHash> retries_;  // of those that are to be had later, and are waited for
  bool is_asking_ = false;
  EventLoop::Timer look_timer_;
};

}  // namespace entrepot::plasma
