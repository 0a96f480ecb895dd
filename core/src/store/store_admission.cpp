// Admission: whether a lease fits now, after evictions, later or never; limits on clients; memory accounting.
#include <algorithm>

#include "base/text.h"
#include "store/status/json_writer.h"
#include "store/store.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kBytesPerClient = 128U << 10;  // of capacity, per admissible client
constexpr std::uint64_t kMinClients = 64;

}  // namespace

Status Store::reserve_for_client(std::uint64_t bytes) {
  Status taken = budget_.reserve(BudgetItem::kPinTables, bytes);
  while (taken.code() == Code::kStoreFull && pager_.reclaim(bytes, Pager::Purpose::kNew))
    taken = budget_.reserve(BudgetItem::kPinTables, bytes);
  return taken;
}

Status Store::check_client_limit(bool forked) const {
  const std::uint64_t most =
      std::clamp<std::uint64_t>(options_.capacity_bytes / kBytesPerClient, kMinClients, kMaxClients);
  const auto& all = clients_.all();
  if (all.size() >= most) {
    return Status(Code::kStoreFull,
                  concat("a store of ", format_bytes(options_.capacity_bytes), " supports ", most,
                         " clients, and all are connected: end processes that no longer need it, share one connection "
                         "between threads, or start the daemon with a larger --size"),
                  true);
  }
  if (!forked) return Status::ok();
  const auto forks = static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const auto& entry) { return entry.second.identity.forked; }));
  if (forks < most / 2) return Status::ok();
  return Status(Code::kStoreFull,
                concat("a store of ", format_bytes(options_.capacity_bytes), " supports ", most / 2,
                       " forked clients, and all are connected: end forked processes that no longer need "
                       "it, close the store before forking, or start the daemon with a larger --size"),
                true);
}

// Leases from free memory, or from what the pager can free at once.
Result<std::optional<LeaseGrant>> Store::try_lease(PendingLease& request) {
  while (true) {
    Result<std::optional<LeaseGrant>> grant =
        pool_.lease(request.client, request.min_bytes, request.want_bytes, request.wait);
    const bool no_memory = grant.is_ok() && !grant->has_value() && request.wait.segment == kNoSegment;
    if (!no_memory) return grant;
    // Evicts nothing for a request that would not fit even then.
    ImmovableMemory immovable;
    const Fit fit = fits_after_eviction(request, immovable);
    if (fit == Fit::kNever) return never_fits_error(request, immovable);
    if (fit == Fit::kLater) return grant;
    request.remedies.evicting = request.remedies.evicting || pager_.enabled();
    if (!pager_.reclaim(request.min_bytes, Pager::Purpose::kNew)) return grant;
  }
}

// Other clients' pins go away by themselves and are waited for. Not so what the requester itself pins while it waits,
// what users keep in memory, and everything that is not payload.
Store::Fit Store::fits_after_eviction(const PendingLease& request, ImmovableMemory& immovable) const {
  immovable = pager_.immovable(request.origin.client);
  const std::uint64_t fixed = pager_.enabled() ? budget_.fixed_bytes() : 0;
  const std::uint64_t stays = fixed + immovable.own + immovable.user_pinned;
  const auto fits_beside = [&](std::uint64_t taken) {
    return taken <= options_.capacity_bytes && request.min_bytes <= options_.capacity_bytes - taken;
  };
  if (!fits_beside(stays)) return Fit::kNever;
  return fits_beside(stays + immovable.others) ? Fit::kNow : Fit::kLater;
}

Status Store::never_fits_error(const PendingLease& request, const ImmovableMemory& immovable) const {
  return Status(Code::kStoreFull,
                concat("no room for ", format_bytes(request.min_bytes), " (", request.min_bytes,
                       " bytes), and waiting would not help: of ", format_bytes(options_.capacity_bytes),
                       ", this process itself pins ", format_bytes(immovable.own), ", users pin ",
                       format_bytes(immovable.user_pinned), " in memory, and other processes pin ",
                       format_bytes(immovable.others),
                       ". Nothing was evicted for it. Release values that this process holds, then put again; ",
                       describe_holders({})));
}

Status Store::store_full_error(const PendingLease& request) const {
  const bool provisioning = request.wait.segment != kNoSegment;
  return Status(
      Code::kStoreFull,
      concat(provisioning ? "memory was not provisioned in time for " : "no room for ", format_bytes(request.min_bytes),
             " (", request.min_bytes, " bytes): ", describe_holders(request.remedies)),
      true);
}

void Store::write_budget(JsonWriter& json) const {
  json.key("budget")
      .open_object()
      .field("limit_bytes", budget_.limit_bytes())
      .field("margin_bytes", MemoryBudget::kMarginBytes)
      .field("granted_bytes", budget_.granted())
      .field("free_bytes", budget_.free_bytes())
      .key("items")
      .open_object();
  for (std::size_t i = 0; i < kBudgetItems; ++i) {
    const auto item = static_cast<BudgetItem>(i);
    json.field(budget_item_name(item), budget_.granted(item));
  }
  json.close_object().close_object();
}

}  // namespace entrepot
