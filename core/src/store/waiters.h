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
#include "store/segment_pool.h"
#include "store/types.h"

namespace entrepot {

// What was tried to make room before reporting that there is none.
struct Tried {
  bool moving = false;   // evicting other objects to disk
  bool waiting = false;  // waiting until something is released
};

struct LookupWaiter {
  Asker asker;
  std::uint64_t deadline_ns = 0;
  std::uint64_t load_ms = 0;
  std::vector<IdBytes> ids;
  std::unordered_set<IdBytes, IdHash> missing;
  LookupDone done;
};

struct NameWaiter {
  Asker asker;
  std::uint64_t deadline_ns = 0;
  std::uint32_t session = 0;  // index
  std::string name;
  NameDone done;
};

struct LeaseWaiter {
  Asker asker;
  std::uint64_t deadline_ns = 0;
  SegmentWriterRef client;
  std::uint64_t min_bytes = 0;
  std::uint64_t want_bytes = 0;
  LeaseWait wait;
  LeaseDone done;
  Tried tried;  // so far, for this request
};

struct ProvisionWaiter {
  Asker asker;
  std::uint64_t deadline_ns = 0;
  ProvisionDone done;
};

// Guarded by the daemon's thread. Callbacks run only after their waiter left the lists, so they may issue requests.
struct Waiters {
  std::list<LookupWaiter> lookups;
  std::unordered_multimap<IdBytes, std::list<LookupWaiter>::iterator, IdHash> lookups_by_id;
  std::list<NameWaiter> names;
  std::list<LeaseWaiter> leases;  // first come, first served
  std::list<ProvisionWaiter> provisions;

  void add_lookup(LookupWaiter waiter) {
    lookups.push_back(std::move(waiter));
    const auto it = std::prev(lookups.end());
    for (const IdBytes& id : it->missing)
      lookups_by_id.emplace(id, it);
  }

  LookupWaiter take_lookup(std::list<LookupWaiter>::iterator it) {
    for (const IdBytes& id : it->missing) {
      const auto [first, last] = lookups_by_id.equal_range(id);
      for (auto entry = first; entry != last; ++entry) {
        if (entry->second == it) {
          lookups_by_id.erase(entry);
          break;
        }
      }
    }
    LookupWaiter waiter = std::move(*it);
    lookups.erase(it);
    return waiter;
  }

  // Returns the waiters that are complete now that `id` is sealed.
  std::vector<LookupWaiter> sealed(const IdBytes& id) {
    std::vector<std::list<LookupWaiter>::iterator> ready;
    const auto [first, last] = lookups_by_id.equal_range(id);
    for (auto entry = first; entry != last; ++entry) {
      entry->second->missing.erase(id);
      if (entry->second->missing.empty()) ready.push_back(entry->second);
    }
    lookups_by_id.erase(first, last);
    std::vector<LookupWaiter> result;
    result.reserve(ready.size());
    for (const auto& it : ready)
      result.push_back(take_lookup(it));
    return result;
  }

  [[nodiscard]] std::uint64_t next_deadline_ns() const {
    std::uint64_t next = UINT64_MAX;
    const auto look = [&](const auto& list) {
      for (const auto& waiter : list)
        next = std::min(next, waiter.deadline_ns);
    };
    look(lookups);
    look(names);
    look(leases);
    look(provisions);
    return next;
  }
};

}  // namespace entrepot
