// Room for the tables that grow with what is stored: records, slots, blobs, index, names, sets, consumptions, clients.
//
//   refused ──unneeded pages, free segments, clean objects──▶ room is made ──▶ tried again
//      └─────nothing can leave before it is written─▶ coming ──when_room()──▶ waiting ──written──▶ tried again
//                    └──nothing can leave at all──▶ none: the refusal stands
//
// New segments leave head-room, so that this seldom happens; and when the tables have used it up, objects are evicted
// for it ahead of the next request:
//
//   head-room: enough ──less than half is free──▶ being restored ──all of it is free, or nothing can leave──▶ enough
#include <algorithm>

#include "store/store.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kRoomWaitMs = 20'000;  // less than a client waits for an answer
constexpr std::uint64_t kHeadroomRetryNs = 50'000'000;
constexpr int kMaxSteps = 64;  // of evictions in one go
// What an object takes in control memory, and how large it is, until enough objects tell.
constexpr std::uint64_t kAssumedObjects = 64;
constexpr std::uint64_t kAssumedControlBytes = 512;
constexpr std::uint64_t kAssumedPayloadBytes = 64U << 10;
constexpr std::uint64_t kLeastHeadroom = 64U << 10;  // the step in which tables grow

}  // namespace

// What the objects will take that fit into the memory that is leased and into one more segment, if they are like those
// that exist. No more than such a segment, whatever the objects are like.
std::uint64_t Store::headroom_bytes() const {
  if (!pager_.enabled()) return 0;
  const std::uint64_t most = pool_.small_segment_bytes();
  const double control =
      static_cast<double>(budget_.fixed_bytes()) + static_cast<double>(kAssumedObjects * kAssumedControlBytes);
  const double payload =
      static_cast<double>(parts_.catalog.payload_bytes()) + static_cast<double>(kAssumedObjects * kAssumedPayloadBytes);
  const double expected = control / payload * static_cast<double>(pool_.leased_bytes() + most);
  const std::uint64_t bytes = expected < static_cast<double>(most) ? static_cast<std::uint64_t>(expected) : most;
  return bytes < kLeastHeadroom ? 0 : bytes;
}

void Store::keep_headroom() {
  if (!pager_.enabled()) return;
  const std::uint64_t headroom = headroom_bytes();
  const std::uint64_t wanted = std::max(headroom, wanted_bytes_);
  if (budget_.free_bytes() >= (keeps_headroom_ ? wanted : std::max(headroom / 2, wanted_bytes_))) {
    keeps_headroom_ = false;
    wanted_bytes_ = 0;
    return;
  }
  const std::uint64_t now = clock_->monotonic_ns();
  if (now < next_headroom_ns_) return;
  keeps_headroom_ = true;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (pool_.reclaim(wanted)) return;
    if (!pager_.reclaim(wanted - std::min(wanted, budget_.free_bytes()), Pager::Purpose::kNew)) break;
  }
  next_headroom_ns_ = now + kHeadroomRetryNs;
  keeps_headroom_ = pager_.has_io_in_progress();
  if (!keeps_headroom_) wanted_bytes_ = 0;
}

std::uint64_t Store::trim_tables() {
  if (parts_.withheld.is_withholding()) return 0;  // what seems free may be in use
  return parts_.catalog.trim() + names_.trim() + consumers_.trim();
}

Store::Room Store::make_room() {
  const std::uint64_t bytes = budget_.take_refused();
  if (bytes == 0) return Room::kNone;  // something else is full
  if (trim_tables() >= bytes) return Room::kMade;
  const ImmovableMemory immovable = pager_.immovable(kMaxClients);
  const std::uint64_t stays = budget_.fixed_bytes() + immovable.user_pinned;
  if (stays > options_.capacity_bytes || bytes > options_.capacity_bytes - stays) return Room::kNone;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (budget_.free_bytes() >= bytes || pool_.reclaim(bytes)) return Room::kMade;
    if (!pager_.reclaim(bytes + std::max(headroom_bytes(), kLeastHeadroom), Pager::Purpose::kNew)) break;
  }
  return pager_.may_make_room() ? Room::kComing : Room::kNone;
}

void Store::when_room(const RequestOrigin& origin, RoomAttempt attempt) {
  pending_.rooms.push_back({origin, deadline(kRoomWaitMs), std::move(attempt)});
  set_memory_wanted();
}

void Store::try_rooms() {
  const std::uint64_t now = clock_->monotonic_ns();
  while (!pending_.rooms.empty()) {
    std::list<PendingRoom> first;
    first.splice(first.begin(), pending_.rooms, pending_.rooms.begin());
    if (first.front().attempt(first.front().deadline_ns <= now)) continue;
    pending_.rooms.splice(pending_.rooms.begin(), first);
    return;
  }
}

}  // namespace entrepot
