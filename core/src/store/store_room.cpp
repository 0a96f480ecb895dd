// Admission: whether a lease fits now, after evictions, later or never; limits on clients; memory accounting; and
// giving back surplus memory.
#include <algorithm>

#include "base/text.h"
#include "store/json.h"
#include "store/store.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kBytesAClient = 128U << 10;  // of capacity, per admissible client
constexpr std::uint64_t kLeastClients = 64;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kMostCalmSeconds = 1'000'000'000;
constexpr std::uint64_t kSurplusStepNs = 100'000'000;    // between two steps of giving free segments back
constexpr std::uint64_t kSurplusStepBytes = 256U << 20;  // per step: 40 ms of the provisioner's thread

}  // namespace

Status Store::take_for_client(std::uint64_t bytes) {
  Status taken = budget_.take(BudgetItem::kPinTables, bytes);
  while (taken.code() == Code::kStoreFull && pager_.reclaim(bytes, Pager::Purpose::kNew))
    taken = budget_.take(BudgetItem::kPinTables, bytes);
  return taken;
}

Status Store::may_register(bool forked) const {
  const std::uint64_t most =
      std::clamp<std::uint64_t>(options_.capacity_bytes / kBytesAClient, kLeastClients, kMaxClients);
  const auto& all = clients_.all();
  if (all.size() >= most) {
    return Status(Code::kStoreFull,
                  concat("a store of ", format_bytes(options_.capacity_bytes), " takes ", most,
                         " clients, and so many are there: end processes that need it no longer, share one connection "
                         "between threads, or start the daemon with a larger --size"),
                  true);
  }
  if (!forked) return Status::ok();
  const auto forks = static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const auto& entry) { return entry.second.identity.forked; }));
  if (forks < most / 2) return Status::ok();
  return Status(Code::kStoreFull,
                concat("a store of ", format_bytes(options_.capacity_bytes), " takes ", most / 2,
                       " clients that come of a fork, and so many are there: end forked processes that need it no "
                       "longer, close the store before forking, or start the daemon with a larger --size"),
                true);
}

// Leases from free memory, or from what the pager can free at once.
Result<std::optional<LeaseGrant>> Store::try_lease(LeaseWaiter& waiter) {
  while (true) {
    Result<std::optional<LeaseGrant>> got =
        pool_.lease(waiter.client, waiter.min_bytes, waiter.want_bytes, waiter.wait);
    const bool no_memory = got.is_ok() && !got->has_value() && waiter.wait.segment == kNoSegment;
    if (!no_memory) return got;
    // Evicts nothing for a request that would not fit even then.
    Pager::Immovable immovable;
    const Room room = room_for(waiter, immovable);
    if (room == Room::kNever) return never_fits(waiter, immovable);
    if (room == Room::kLater) return got;
    waiter.tried.moving = waiter.tried.moving || pager_.enabled();
    if (!pager_.reclaim(waiter.min_bytes, Pager::Purpose::kNew)) return got;
  }
}

// Other clients' pins go away by themselves and are waited for. Not so what the requester itself pins while it waits,
// what users keep in memory, and everything that is not payload.
Store::Room Store::room_for(const LeaseWaiter& waiter, Pager::Immovable& immovable) const {
  immovable = pager_.immovable(waiter.asker.client);
  const std::uint64_t fixed = pager_.enabled() ? budget_.fixed_bytes() : 0;
  const std::uint64_t stays = fixed + immovable.own + immovable.kept;
  const auto fits_beside = [&](std::uint64_t taken) {
    return taken <= options_.capacity_bytes && waiter.min_bytes <= options_.capacity_bytes - taken;
  };
  if (!fits_beside(stays)) return Room::kNever;
  return fits_beside(stays + immovable.others) ? Room::kNow : Room::kLater;
}

Status Store::never_fits(const LeaseWaiter& waiter, const Pager::Immovable& immovable) const {
  return Status(Code::kStoreFull,
                concat("no room for ", format_bytes(waiter.min_bytes), " (", waiter.min_bytes,
                       " bytes), and none to wait for: of ", format_bytes(options_.capacity_bytes),
                       " this process itself pins ", format_bytes(immovable.own), ", users keep ",
                       format_bytes(immovable.kept), " in memory, and others pin ", format_bytes(immovable.others),
                       ". Nothing was moved out for it. Drop values that this process holds, then put again; ",
                       describe_holders({})));
}

Status Store::store_full(const LeaseWaiter& waiter) const {
  const bool provisioning = waiter.wait.segment != kNoSegment;
  return Status(
      Code::kStoreFull,
      concat(provisioning ? "memory is being provisioned, but not ready in time, for " : "no room for ",
             format_bytes(waiter.min_bytes), " (", waiter.min_bytes, " bytes): ", describe_holders(waiter.tried)),
      true);
}

// Free memory beyond the warm target is given back to the machine when no segment was taken for a while.
void Store::watch_surplus() {
  const bool taken = seen_taken_ != pool_.segments_taken();
  const bool freed = seen_freed_ != pool_.segments_freed();
  seen_taken_ = pool_.segments_taken();
  seen_freed_ = pool_.segments_freed();
  if (next_surplus_ns_ != 0 ? taken : freed) put_off_surplus();
}

void Store::put_off_surplus() {
  if (options_.give_back_after_seconds == 0) return;
  const std::uint64_t calm = std::min(options_.give_back_after_seconds, kMostCalmSeconds) * kNsPerSecond;
  next_surplus_ns_ = clock_->monotonic_ns() + calm;
}

void Store::drop_surplus() {
  watch_surplus();  // somebody may have taken one just now
  const std::uint64_t now = clock_->monotonic_ns();
  if (next_surplus_ns_ == 0 || now < next_surplus_ns_) return;
  if (!waiters_.leases.empty()) return put_off_surplus();
  next_surplus_ns_ = pool_.drop_surplus(kSurplusStepBytes) ? now + kSurplusStepNs : 0;
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
