// Admission: whether a lease fits now, after evictions, later or never; limits on clients; memory accounting; and
// giving back surplus memory.
#include <algorithm>

#include "base/align.h"
#include "base/text.h"
#include "store/status/json_writer.h"
#include "store/store.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kBytesPerClient = 128U << 10;  // of capacity, per admissible client
constexpr std::uint64_t kMinClients = 64;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kMaxGiveBackSeconds = 1'000'000'000;
constexpr std::uint64_t kSurplusStepNs = 100'000'000;    // between two steps of giving free segments back
constexpr std::uint64_t kSurplusStepBytes = 256U << 20;  // per step: 40 ms of the provisioner's thread

}  // namespace

Result<std::uint32_t> Store::begin_client() {
  return with_room([&] { return clients_.begin(); });
}

Status Store::reserve_for_client(std::uint64_t bytes) {
  return with_room([&] { return budget_.reserve(BudgetItem::kPinTables, bytes); });
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
  const auto lease = [&](std::uint64_t headroom) {
    pool_.keep_free(headroom);
    auto grant = pool_.lease(request.client, request.min_bytes, request.want_bytes, request.wait);
    pool_.keep_free(0);
    return grant;
  };
  while (true) {
    const std::uint64_t headroom = headroom_bytes();
    Result<std::optional<LeaseGrant>> grant = lease(headroom);
    const bool no_memory = grant.is_ok() && !grant->has_value() && request.wait.segment == kNoSegment;
    if (!no_memory) return grant;
    if (trim_tables() != 0) continue;
    // Evicts nothing for a request that would not fit even then.
    ImmovableMemory immovable;
    const Fit fit = fits_after_eviction(request, immovable);
    if (fit == Fit::kNever) return never_fits_error(request, immovable);
    if (fit == Fit::kLater) return headroom == 0 ? grant : lease(0);
    request.remedies.evicting = request.remedies.evicting || pager_.enabled();
    if (pager_.reclaim(request.min_bytes, Pager::Purpose::kNew)) continue;
    // Head-room is worth a wait, but nothing that fits is refused for it.
    return headroom == 0 || pager_.has_io_in_progress() ? grant : lease(0);
  }
}

// Other clients' pins go away by themselves and are waited for. Not so what the requester itself pins while it waits,
// what users keep in memory, and everything that is not payload, unless a delete may free it: what deletes have left,
// nobody can free any more, since unneeded pages were returned before.
Store::Fit Store::fits_after_eviction(const PendingLease& request, ImmovableMemory& immovable) const {
  immovable = pager_.immovable(request.origin.client);
  const bool holds_objects =
      parts_.catalog.count() != 0 || parts_.deferred.count() != 0 || parts_.withheld.is_withholding();
  const std::uint64_t fixed = holds_objects && !pager_.enabled() ? 0 : budget_.fixed_bytes();
  // An empty store has no segment with a suitable range, so one of whole huge pages has to be made.
  const bool is_empty = !holds_objects && pool_.leased_bytes() == 0;
  const std::uint64_t needed = is_empty ? round_up(request.min_bytes, kSegmentAlign) : request.min_bytes;
  const std::uint64_t stays = fixed + immovable.own + immovable.user_pinned;
  const auto fits_beside = [&](std::uint64_t taken) {
    return taken <= options_.capacity_bytes && needed <= options_.capacity_bytes - taken;
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
                       format_bytes(immovable.others), "; in all: ", budget_.describe(),
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

// Free memory beyond the warm target is given back to the machine when no segment was taken for a while.
void Store::track_surplus() {
  const bool taken = last_segments_taken_ != pool_.segments_taken();
  const bool freed = last_segments_freed_ != pool_.segments_freed();
  last_segments_taken_ = pool_.segments_taken();
  last_segments_freed_ = pool_.segments_freed();
  if (next_surplus_ns_ != 0 ? taken : freed) postpone_surplus_release();
}

void Store::postpone_surplus_release() {
  if (options_.give_back_after_seconds == 0) return;
  const std::uint64_t delay_ns = std::min(options_.give_back_after_seconds, kMaxGiveBackSeconds) * kNsPerSecond;
  next_surplus_ns_ = clock_->monotonic_ns() + delay_ns;
}

void Store::release_surplus() {
  track_surplus();  // somebody may have taken one just now
  const std::uint64_t now = clock_->monotonic_ns();
  if (next_surplus_ns_ == 0 || now < next_surplus_ns_) return;
  if (!pending_.leases.empty()) return postpone_surplus_release();
  next_surplus_ns_ = pool_.release_surplus(kSurplusStepBytes) ? now + kSurplusStepNs : 0;
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
