// Requests that wait for a seal, a name, memory, warm memory, room in tables or a record of the manifest on disk. Each
// has a deadline and an owner.
//
//   waiting --condition met--> answered
//   waiting --deadline--> answered (with what is available, or Timeout)
//   waiting --its connection ends--> dropped, unanswered
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/id.h"
#include "store/memory/segment_pool.h"
#include "store/types.h"
#include "store/wait_list.h"

namespace entrepot {

// What was tried to make room before reporting that there is none.
struct Remedies {
  bool evicting = false;        // evicting other objects to disk
  bool waiting = false;         // waiting until something is released
  bool short_of_quota = false;  // and some objects could not be evicted because of the spill quota
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

// A request that was executed, and is answered once the manifest on disk records it too.
struct PendingRecord {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  std::uint64_t timeout_ms = 0;
  std::uint64_t record = 0;
  RecordDone done;
};

// Guarded by the daemon's thread. Callbacks run only after their request left the lists, so they may issue requests.
class PendingRequests {
 public:
  void add(PendingLookup request);
  void add(PendingNameResolution request) { names_.add(std::move(request)); }
  void add(PendingLease request) { leases_.add(std::move(request)); }
  void add(PendingProvision request) { provisions_.add(std::move(request)); }
  void add(PendingRoom request) { rooms_.add(std::move(request)); }
  void add(PendingRecord request) { records_.add(std::move(request)); }

  // --- whose condition is met
  [[nodiscard]] std::vector<PendingLookup> sealed(const IdBytes& id);  // complete now that `id` is sealed
  [[nodiscard]] std::vector<PendingNameResolution> named(std::uint32_t session, std::string_view name);
  [[nodiscard]] std::vector<PendingNameResolution> of_session(std::uint32_t session);  // which ends
  [[nodiscard]] std::vector<PendingProvision> take_provisions();
  [[nodiscard]] std::vector<PendingRecord> recorded(std::uint64_t written);  // up to this record
  // First come, first served. Its attempts answer while they are in the list, but issue no requests.
  [[nodiscard]] WaitList<PendingRoom>& rooms() { return rooms_; }
  [[nodiscard]] const WaitList<PendingRoom>& rooms() const { return rooms_; }
  [[nodiscard]] WaitList<PendingLease>& leases() { return leases_; }  // first come, first served
  [[nodiscard]] const WaitList<PendingLease>& leases() const { return leases_; }

  // --- whose deadline has come: one at a time, the one that is overdue for longest
  [[nodiscard]] std::optional<PendingLookup> overdue_lookup(std::uint64_t now_ns);
  [[nodiscard]] std::optional<PendingNameResolution> overdue_name(std::uint64_t now_ns);
  [[nodiscard]] std::optional<PendingLease> overdue_lease(std::uint64_t now_ns);
  [[nodiscard]] std::optional<PendingProvision> overdue_provision(std::uint64_t now_ns);
  [[nodiscard]] std::optional<PendingRoom> overdue_room(std::uint64_t now_ns);
  [[nodiscard]] std::optional<PendingRecord> overdue_record(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_deadline_ns() const;

  // Drops all requests of a connection that has ended. Returns those for leases, which may have memory coming.
  [[nodiscard]] std::vector<PendingLease> cancel(std::uint64_t owner);

  [[nodiscard]] bool resolves_names() const { return !names_.empty(); }
  [[nodiscard]] bool waits_for_warm_memory() const { return !provisions_.empty(); }
  [[nodiscard]] bool waits_for_records() const { return !records_.empty(); }
  [[nodiscard]] std::size_t answers_due() const {
    return lookups_.size() + names_.size() + leases_.size() + rooms_.size() + records_.size();
  }

 private:
  using Lookups = WaitList<PendingLookup>;
  [[nodiscard]] PendingLookup take_lookup(Lookups::Iterator it);

  Lookups lookups_;
  std::unordered_multimap<IdBytes, Lookups::Iterator, IdHash> lookups_by_id_;  // by each ID that is missing
  WaitList<PendingNameResolution> names_;
  WaitList<PendingLease> leases_;
  WaitList<PendingProvision> provisions_;
  WaitList<PendingRoom> rooms_;
  WaitList<PendingRecord> records_;
};

}  // namespace entrepot
