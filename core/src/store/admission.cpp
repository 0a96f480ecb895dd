#include "store/admission.h"

#include <algorithm>

#include "base/align.h"
#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kBytesPerClient = 128U << 10;  // of capacity, per admissible client
constexpr std::uint64_t kMinClients = 64;

}  // namespace

Status Admission::reserve_for_client(std::uint64_t bytes) {
  return deps_.room.with_room([&] { return deps_.budget.reserve(BudgetItem::kPinTables, bytes); });
}

Status Admission::check_client_limit(bool forked) const {
  const std::uint64_t most =
      std::clamp<std::uint64_t>(deps_.options.capacity_bytes / kBytesPerClient, kMinClients, kMaxClients);
  const auto& all = deps_.clients.all();
  if (all.size() >= most) {
    return Status(Code::kStoreFull,
                  concat("a store of ", format_bytes(deps_.options.capacity_bytes), " supports ", most,
                         " clients, and all are connected: end processes that no longer need it, share one connection "
                         "between threads, or start the daemon with a larger --size"),
                  true);
  }
  if (!forked) return Status::ok();
  const auto forks = static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const auto& entry) { return entry.second.identity.forked; }));
  if (forks < most / 2) return Status::ok();
  return Status(Code::kStoreFull,
                concat("a store of ", format_bytes(deps_.options.capacity_bytes), " supports ", most / 2,
                       " forked clients, and all are connected: end forked processes that no longer need "
                       "it, close the store before forking, or start the daemon with a larger --size"),
                true);
}

// Leases from free memory, or from what the pager can free at once.
Result<std::optional<LeaseGrant>> Admission::try_lease(PendingLease& request) {
  const auto lease = [&](std::uint64_t headroom) {
    deps_.pool.keep_free(headroom);
    auto grant = deps_.pool.lease(request.client, request.min_bytes, request.want_bytes, request.wait);
    deps_.pool.keep_free(0);
    return grant;
  };
  while (true) {
    const std::uint64_t headroom = deps_.room.headroom_bytes();
    Result<std::optional<LeaseGrant>> grant = lease(headroom);
    const bool no_memory = grant.is_ok() && !grant->has_value() && request.wait.segment == kNoSegment;
    if (!no_memory) return grant;
    if (deps_.room.trim() != 0) continue;
    // Evicts nothing for a request that would not fit even then.
    ImmovableMemory immovable;
    const Fit fit = fits_after_eviction(request, immovable);
    if (fit == Fit::kNever) return never_fits_error(request, immovable);
    if (fit == Fit::kNow) {
      request.remedies.evicting = request.remedies.evicting || deps_.pager.enabled();
      if (deps_.pager.reclaim(request.min_bytes, Pager::Purpose::kNew)) continue;
      request.remedies.short_of_quota = deps_.pager.is_short_of_quota();
      if (deps_.pager.has_io_in_progress()) return grant;
    }
    // Head-room is worth a wait, but nothing that fits is refused for it.
    if (headroom != 0) grant = lease(0);
    if (grant.is_ok() && !grant->has_value() && request.wait.segment == kNoSegment)
      return deps_.pool.lease_fragment(request.client, request.min_bytes);
    return grant;
  }
}

// Other clients' pins go away by themselves and are waited for. Not so what the requester itself pins while it waits,
// what users keep in memory, and everything that is not payload, unless a delete may free it: what deletes have left,
// nobody can free any more, since unneeded pages were returned before.
Admission::Fit Admission::fits_after_eviction(const PendingLease& request, ImmovableMemory& immovable) const {
  immovable = deps_.pager.immovable(request.origin.client);
  // An empty store has no segment with a suitable range, so one of whole huge pages has to be made.
  const bool is_empty = !holds_objects() && deps_.pool.leased_bytes() == 0;
  const std::uint64_t needed = is_empty ? round_up(request.min_bytes, kSegmentAlign) : request.min_bytes;
  const std::uint64_t stays = lasting_tables() + immovable.own + immovable.user_pinned;
  const auto fits_beside = [&](std::uint64_t taken) {
    return taken <= deps_.options.capacity_bytes && needed <= deps_.options.capacity_bytes - taken;
  };
  if (!fits_beside(stays)) return Fit::kNever;
  return fits_beside(stays + immovable.others) ? Fit::kNow : Fit::kLater;
}

bool Admission::holds_objects() const {
  return deps_.parts.catalog.count() != 0 || deps_.parts.deferred.count() != 0 || deps_.parts.withheld.is_withholding();
}

std::uint64_t Admission::lasting_tables() const {
  return holds_objects() && !deps_.pager.enabled() ? 0 : deps_.budget.fixed_bytes();
}

Status Admission::never_fits_error(const PendingLease& request, const ImmovableMemory& immovable) const {
  return Status(Code::kStoreFull,
                concat("no room for ", format_bytes(request.min_bytes), " (", request.min_bytes,
                       " bytes), and waiting would not help: of ", format_bytes(deps_.options.capacity_bytes),
                       ", this process itself pins ", format_bytes(immovable.own), ", users pin ",
                       format_bytes(immovable.user_pinned), " in memory, and other processes pin ",
                       format_bytes(immovable.others), "; in all: ", deps_.budget.describe(),
                       ". Nothing was evicted for it. Release values that this process holds, then put again; ",
                       deps_.report.describe_holders({})));
}

Status Admission::store_full_error(const PendingLease& request) const {
  const bool provisioning = request.wait.segment != kNoSegment;
  return Status(
      Code::kStoreFull,
      concat(provisioning ? "memory was not provisioned in time for " : "no room for ", format_bytes(request.min_bytes),
             " (", request.min_bytes, " bytes): ", deps_.report.describe_holders(request.remedies)),
      true);
}

// --- reservations

Admission::TakenBeside Admission::taken_beside_reservations(std::uint32_t client, std::uint64_t bytes) const {
  const Reservations& reservations = deps_.reservations;
  TakenBeside taken;
  taken.tables = deps_.budget.fixed_bytes();
  if (deps_.pager.enabled()) {
    const ImmovableMemory immovable =
        deps_.pager.immovable(client, [&](std::uint32_t blob) { return reservations.covered(blob); });
    taken.stays = immovable.own + immovable.others + immovable.user_pinned;
  } else {
    const std::uint64_t stored = deps_.pool.blob_bytes();
    taken.stays = stored - std::min(stored, reservations.covered_bytes());
  }
  for (const auto& [holder, leased] : deps_.pool.leased_by_client()) {
    const std::uint64_t reserved = reservations.outstanding(holder) + (holder == client ? bytes : 0);
    taken.leased += leased - std::min(leased, reserved);
  }
  return taken;
}

std::uint64_t Admission::reservable_now(std::uint32_t client, std::uint64_t bytes) const {
  const std::uint64_t taken = deps_.reservations.bytes() + taken_beside_reservations(client, bytes).bytes();
  return deps_.options.capacity_bytes - std::min(deps_.options.capacity_bytes, taken);
}

std::uint64_t Admission::reservable_ever() const {
  const std::uint64_t stays = lasting_tables() + deps_.pager.immovable(kMaxClients).user_pinned;
  return deps_.options.capacity_bytes - std::min(deps_.options.capacity_bytes, stays);
}

Status Admission::never_reservable_error(std::uint64_t bytes) const {
  return Status(Code::kStoreFull,
                concat("cannot reserve ", format_bytes(bytes), " (", bytes, " bytes), and waiting would not help: of ",
                       format_bytes(deps_.options.capacity_bytes), ", at most ", format_bytes(reservable_ever()), " (",
                       reservable_ever(), " bytes) can be reserved beside the store's tables (",
                       format_bytes(deps_.budget.fixed_bytes()), ") and what users pin in memory (",
                       format_bytes(deps_.pager.immovable(kMaxClients).user_pinned),
                       "). Reserve less, or start the daemon with a larger --size"));
}

Status Admission::not_reserved_error(const PendingReservation& request) const {
  const TakenBeside taken = taken_beside_reservations(request.origin.client, request.bytes);
  return Status(
      Code::kStoreFull,
      concat("no room in time to reserve ", format_bytes(request.bytes), " (", request.bytes, " bytes): of ",
             format_bytes(deps_.options.capacity_bytes), ", ", deps_.report.describe_reservations(), "; beside that, ",
             format_bytes(taken.stays),
             deps_.pager.enabled() ? " is pinned in memory, " : " is stored (spilling is off), ",
             format_bytes(taken.leased), " is leased to clients, and tables take ", format_bytes(taken.tables),
             ". Wait longer, reserve less, delete objects, or start the daemon with a larger --size"),
      true);
}

}  // namespace entrepot
