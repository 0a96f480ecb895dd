#include "store/table_room.h"

#include <algorithm>

#include "os/memory_info.h"
#include "shm/region.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHeadroomRetryNs = 50'000'000;
constexpr int kMaxSteps = 64;  // of evictions in one go
// What an object takes in control memory, and how large it is, until enough objects tell.
constexpr std::uint64_t kAssumedObjects = 64;
constexpr std::uint64_t kAssumedControlBytes = 512;
constexpr std::uint64_t kAssumedPayloadBytes = 64U << 10;

}  // namespace

// What the objects will take that fit into the memory that is leased and into one more segment, if they are like those
// that exist. No more than such a segment, whatever the objects are like.
std::uint64_t TableRoom::headroom_bytes() const {
  if (!deps_.pager.enabled()) return 0;
  const std::uint64_t most = deps_.pool.small_segment_bytes();
  const double control =
      static_cast<double>(deps_.budget.fixed_bytes()) + static_cast<double>(kAssumedObjects * kAssumedControlBytes);
  const double payload = static_cast<double>(deps_.parts.catalog.payload_bytes()) +
                         static_cast<double>(kAssumedObjects * kAssumedPayloadBytes);
  const double expected = control / payload * static_cast<double>(deps_.pool.leased_bytes() + most);
  const std::uint64_t bytes = expected < static_cast<double>(most) ? static_cast<std::uint64_t>(expected) : most;
  return bytes < Region::kGrowBytes ? 0 : bytes;
}

void TableRoom::keep_headroom() {
  if (!deps_.pager.enabled()) return;
  const std::uint64_t headroom = headroom_bytes();
  const std::uint64_t wanted = std::max(headroom, wanted_bytes_);
  if (deps_.budget.free_bytes() >= (restores_headroom_ ? wanted : std::max(headroom / 2, wanted_bytes_))) {
    restores_headroom_ = false;
    wanted_bytes_ = 0;
    return;
  }
  const std::uint64_t now = deps_.clock.monotonic_ns();
  if (now < next_restore_ns_) return;
  restores_headroom_ = true;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (deps_.pool.reclaim(wanted)) return;
    if (!deps_.pager.reclaim(wanted - std::min(wanted, deps_.budget.free_bytes()), Pager::Purpose::kNew)) break;
  }
  next_restore_ns_ = now + kHeadroomRetryNs;
  restores_headroom_ = deps_.pager.has_io_in_progress();
  if (!restores_headroom_) wanted_bytes_ = 0;
}

std::uint64_t TableRoom::trim() {
  if (deps_.parts.withheld.is_withholding()) return 0;  // what seems free may be in use
  const std::uint64_t bytes = deps_.parts.catalog.trim() + deps_.names.trim() + deps_.consumers.trim();
  if (bytes == 0) return 0;
  deps_.parts.sessions.trim_slots(deps_.parts.catalog.slot_end());
  deps_.pager.trim_slots(deps_.parts.catalog.slot_end());
  os::return_free_heap();
  return bytes;
}

TableRoom::Room TableRoom::make() {
  const std::uint64_t bytes = deps_.budget.take_refused();
  if (bytes == 0) return Room::kNone;  // something else is full
  if (trim() >= bytes) return Room::kMade;
  const ImmovableMemory immovable = deps_.pager.immovable(kMaxClients);
  const std::uint64_t stays = deps_.budget.fixed_bytes() + immovable.user_pinned;
  if (stays > deps_.options.capacity_bytes || bytes > deps_.options.capacity_bytes - stays) return Room::kNone;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (deps_.budget.free_bytes() >= bytes || deps_.pool.reclaim(bytes)) return Room::kMade;
    if (!deps_.pager.reclaim(bytes + std::max(headroom_bytes(), Region::kGrowBytes), Pager::Purpose::kNew)) break;
  }
  return deps_.pager.may_make_room() || holds_unsealed_memory() ? Room::kComing : Room::kNone;
}

// Clients return what they do not use of their leases when others wait, and objects come and go: with that much beside
// the sealed objects, a whole segment is likely to become free soon.
bool TableRoom::holds_unsealed_memory() const {
  return deps_.pool.committed_bytes() >= deps_.pool.blob_bytes() + deps_.pool.small_segment_bytes();
}

}  // namespace entrepot
