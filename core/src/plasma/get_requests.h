// GetRequests: gets that wait, and the objects that are brought into the arena for them.
//
//   asked for ──in the arena──▶ held, answered with the others
//       └──not there──▶ missing ──sealed by a Plasma client──────────────▶ held
//                          ├──shown by the store's directory──▶ fetching ─┘
//                          └──time-out──▶ answered as not there
//   fetching ──in memory, in a segment for Plasma clients──▶ added in place
//            └──elsewhere──▶ read back if it is on disk, copied into the arena──▶ added
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
    bool waits_for_fetches = false;                // and for nothing else
    EventLoop::Timer deadline;
  };

  [[nodiscard]] bool take(ClientChannel& client, Waiting& waiting, const IdBytes& id);
  void answer_if_complete(ClientKey client, bool is_late = false);
  void look();  // for missing objects, in the directory
  void fetch(const IdBytes& id);
  void place(const IdBytes& id, StoredObject stored);
  void bring_in_background(const IdBytes& id, StoredObject stored);
  void add(const IdBytes& id, const StoredObject& stored, Extent extent, bool is_in_place);
  void fetched(const IdBytes& id, bool is_usable);

  Parts parts_;
  std::unordered_map<ClientKey, Waiting> waiting_;  // one a client: it waits for its reply
  std::unordered_set<IdBytes, IdHash> fetching_;
  EventLoop::Timer look_timer_;
};

}  // namespace entrepot::plasma
