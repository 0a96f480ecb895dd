// Admission: whether a request for memory fits now, after evictions, later or never, and what its error says.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/memory/segment_pool.h"
#include "store/paging/pager.h"
#include "store/pending_requests.h"
#include "store/session/client_table.h"
#include "store/store_report.h"
#include "store/table_room.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Admission {
 public:
  struct Deps {  // all must outlive it
    const ClientTable& clients;
    const StoreOptions& options;
    MemoryBudget& budget;
    SegmentPool& pool;
    Pager& pager;
    const ObjectParts& parts;
    TableRoom& room;
    const StoreReport& report;
  };
  explicit Admission(const Deps& deps) : deps_(deps) {}

  // kStoreFull if the maximum number of clients, or of forked ones, for a store of this size is reached.
  [[nodiscard]] Status check_client_limit(bool forked) const;
  // Reserves memory for a client, evicting objects if necessary. kStoreFull.
  [[nodiscard]] Status reserve_for_client(std::uint64_t bytes);
  // Leases from free memory, or from what the pager can free at once. None: not yet. kStoreFull: never, or the machine
  // has no memory.
  [[nodiscard]] Result<std::optional<LeaseGrant>> try_lease(PendingLease& request);
  [[nodiscard]] Status store_full_error(const PendingLease& request) const;  // for one that waited in vain

 private:
  // Whether the lease would fit if everything evictable left: now, once other clients' pins go, or never.
  enum class Fit : std::uint8_t { kNow, kLater, kNever };
  [[nodiscard]] Fit fits_after_eviction(const PendingLease& request, ImmovableMemory& immovable) const;
  [[nodiscard]] Status never_fits_error(const PendingLease& request, const ImmovableMemory& immovable) const;

  Deps deps_;
};

}  // namespace entrepot
