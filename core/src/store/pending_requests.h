// Requests that wait for a seal, a name, memory or warm memory. Each has a deadline and an owner.
//
//   waiting --condition met--> answered
//   waiting --deadline--> answered (with what is available, or Timeout)
//   waiting --its connection ends--> dropped, unanswered
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/id.h"
#include "store/memory/segment_pool.h"
#include "store/types.h"

namespace entrepot {

// What was tried to make room before reporting that there is none.
struct Remedies {
  bool evicting = false;  // evicting other objects to disk
  bool waiting = false;   // waiting until something is released
};

struct PendingLookup {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  std::uint64_t load_ms = 0;
  std::vector<IdBytes> ids;
  std::unordered_set<IdBytes, IdHash> missing;
  LookupDone done;
};

struct PendingNameResolution {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  std::uint32_t session = 0;  // index
  std::string name;
  NameDone done;
};

struct PendingLease {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  SegmentWriterRef client;
  std::uint64_t min_bytes = 0;
  std::uint64_t want_bytes = 0;
  LeaseWait wait;
  LeaseDone done;
  Remedies remedies;  // so far, for this request
};

struct PendingProvision {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  ProvisionDone done;
};

// A request for which the store's tables could not grow.
struct PendingRoom {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  RoomAttempt attempt;
};

// Guarded by the daemon's thread. Callbacks run only after their request left the lists, so they may issue requests.
struct PendingRequests {
  std::list<PendingLookup> lookups;
  std::unordered_multimap<IdBytes, std::list<PendingLookup>::iterator, IdHash> lookups_by_id;
  std::list<PendingNameResolution> names;
  std::list<PendingLease> leases;  // first come, first served
  std::list<PendingProvision> provisions;
  std::list<PendingRoom> rooms;  // first come, first served

  void add_lookup(PendingLookup request) {
    lookups.push_back(std::move(request));
    const auto it = std::prev(lookups.end());
    for (const IdBytes& id : it->missing)
      lookups_by_id.emplace(id, it);
  }

  PendingLookup take_lookup(std::list<PendingLookup>::iterator it) {
    for (const IdBytes& id : it->missing) {
      const auto [first, last] = lookups_by_id.equal_range(id);
      for (auto entry = first; entry != last; ++entry) {
        if (entry->second == it) {
          lookups_by_id.erase(entry);
          break;
        }
      }
    }
    PendingLookup request = std::move(*it);
    lookups.erase(it);
    return request;
  }

  // Returns the requests that are complete now that `id` is sealed.
  std::vector<PendingLookup> sealed(const IdBytes& id) {
    std::vector<std::list<PendingLookup>::iterator> ready;
    const auto [first, last] = lookups_by_id.equal_range(id);
    for (auto entry = first; entry != last; ++entry) {
      entry->second->missing.erase(id);
      if (entry->second->missing.empty()) ready.push_back(entry->second);
    }
    lookups_by_id.erase(first, last);
    std::vector<PendingLookup> result;
    result.reserve(ready.size());
    for (const auto& it : ready)
      result.push_back(take_lookup(it));
    return result;
  }

  [[nodiscard]] std::uint64_t next_deadline_ns() const {
    std::uint64_t next = UINT64_MAX;
    const auto earliest = [&](const auto& list) {
      for (const auto& request : list)
        next = std::min(next, request.deadline_ns);
    };
    earliest(lookups);
    earliest(names);
    earliest(leases);
    earliest(provisions);
    earliest(rooms);
    return next;
  }
};

}  // namespace entrepot
