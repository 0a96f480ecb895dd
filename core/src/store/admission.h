// Admission: whether a request for memory, or for a reservation of some, fits now, after evictions, later or never, and
// what its error says.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/memory/segment_pool.h"
#include "store/paging/pager.h"
#include "store/pending_requests.h"
#include "store/reservations.h"
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
    const Reservations& reservations;
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

  // --- reservations
  // How many bytes the client could reserve now, if its leases counted against a reservation of `bytes`.
  [[nodiscard]] std::uint64_t reservable_now(std::uint32_t client, std::uint64_t bytes) const;
  // The same once everything ended that can end by itself. More is never reserved.
  [[nodiscard]] std::uint64_t reservable_ever() const;
  [[nodiscard]] Status never_reservable_error(std::uint64_t bytes) const;
  [[nodiscard]] Status not_reserved_error(const PendingReservation& request) const;  // for one that waited in vain

 private:
  // Whether the lease would fit if everything evictable left: now, once other clients' pins go, or never.
  enum class Fit : std::uint8_t { kNow, kLater, kNever };
  [[nodiscard]] Fit fits_after_eviction(const PendingLease& request, ImmovableMemory& immovable) const;
  [[nodiscard]] Status never_fits_error(const PendingLease& request, const ImmovableMemory& immovable) const;
  // What is not available for reservations, beside those that are granted.
  struct TakenBeside {
    std::uint64_t tables = 0;
    std::uint64_t stays = 0;   // pinned, or kept in memory by users; without a spill backend, everything stored
    std::uint64_t leased = 0;  // beyond what its holders have reserved
    [[nodiscard]] std::uint64_t bytes() const { return tables + stays + leased; }
  };
  [[nodiscard]] TakenBeside taken_beside_reservations(std::uint32_t client, std::uint64_t bytes) const;
  [[nodiscard]] bool holds_objects() const;
  [[nodiscard]] std::uint64_t lasting_tables() const;  // bytes that waiting does not free

  Deps deps_;
};

}  // namespace entrepot
