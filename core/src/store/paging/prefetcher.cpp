// Read-ahead loading: within limits, after all requested loads, and only into memory that nobody needs.
#include <algorithm>
#include <utility>

#include "store/paging/pager.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kShareOfCapacity = 16;  // 1/n of the capacity may be read ahead, for all runs together
constexpr std::uint64_t kMaxAheadBytes = 256U << 20;
constexpr std::uint64_t kShareForTwo = 4;  // two objects always, if they take no more than 1/n of the capacity
constexpr std::size_t kMaxAhead = 64;      // objects
constexpr std::uint64_t kMaxReadingBytes = 96U << 20;  // at once: bounds the delay of a requested load
constexpr std::uint64_t kPollNs = 2'000'000;           // polling interval right after a step
constexpr std::uint64_t kMaxPollNs = 64'000'000;

}  // namespace

void Pager::record_use(std::uint32_t slot, std::uint32_t reader) {
  const Slot& entry = objects_->directory().at(slot);
  const ReadPattern declared = policy_.attributes(sets_->policy_number(entry.session, entry.locality_set)).reading;
  const std::uint64_t steps = read_ahead_.steps();
  read_ahead_.touch(slot, reader, declared, clock_->monotonic_ns());
  if (read_ahead_.steps() == steps) return;
  prefetch_stale_ = true;
  poll_interval_ns_ = kPollNs;
}

// A get of a resident object sends no message. While a run is active and may need loads, the readers' read logs are
// polled, less often the less happens.
void Pager::poll_readers() {
  const std::uint64_t now = clock_->monotonic_ns();
  if (objects_->spilled_bytes() == 0 || !read_ahead_.is_active(now)) {
    if (!prefetch_targets_.empty()) prefetch_stale_ = true;
    next_poll_ns_ = UINT64_MAX;
    return;
  }
  if (next_poll_ns_ == UINT64_MAX) next_poll_ns_ = now + kPollNs;
  if (now < next_poll_ns_) return;
  poll_interval_ns_ = std::min(2 * poll_interval_ns_, kMaxPollNs);
  apply_read_log();  // a step resets the interval
  next_poll_ns_ = now + poll_interval_ns_;
}

bool Pager::may_prefetch(std::uint32_t slot) const {
  return objects_->directory().is_findable(slot) && !objects_->directory().hints(slot).dead &&
         !evict_when_clean_.contains(slot);
}

void Pager::start_prefetches() {
  if (!std::exchange(prefetch_stale_, false)) return;
  std::vector<std::uint32_t> next;
  prefetch_targets_.clear();
  std::uint64_t runs = 0;
  std::uint64_t bytes = 0;  // of this run
  std::uint64_t count = 0;
  const auto begin = [&](std::uint64_t all) {
    runs = all;
    bytes = 0;
    count = 0;
  };
  read_ahead_.for_each_ahead(clock_->monotonic_ns(), begin, [&](std::uint32_t slot) {
    if (!may_prefetch(slot)) return true;
    const std::uint64_t default_limit = std::min(options_.capacity_bytes / kShareOfCapacity, kMaxAheadBytes);
    const std::uint64_t limit = count < 2 ? options_.capacity_bytes / kShareForTwo : default_limit;
    bytes += objects_->directory().at(slot).payload_bytes;
    if (bytes > limit / runs || ++count > kMaxAhead) return false;
    if (prefetch_targets_.insert(slot).second) next.push_back(slot);
    return true;
  });
  // Drop loads that wait for memory and are no longer ahead of any run.
  std::vector<std::uint32_t> dropped;
  for (const auto& [slot, load] : loads_) {
    if (load.is_prefetch && load.queued && !prefetch_targets_.contains(slot)) dropped.push_back(slot);
  }
  for (const std::uint32_t slot : dropped)
    drop_load(slot);
  if (!queue_.empty()) return cancel_queued_prefetches();
  for (const std::uint32_t slot : next) {
    if (prefetch_bytes_ >= kMaxReadingBytes) return;
    if (objects_->is_resident(slot)) continue;
    if (!begin_prefetch(slot)) return;
  }
}

// Returns whether the next object may be tried.
bool Pager::begin_prefetch(std::uint32_t slot) {
  auto it = loads_.find(slot);
  if (it != loads_.end() && (!it->second.is_prefetch || !it->second.queued)) return true;  // already being loaded
  if (it == loads_.end()) {
    it = loads_.emplace(slot, Load{objects_->directory().generation(slot), {}, {}, true, true}).first;
  }
  if (!allocate_all(slot, it->second)) {
    it = loads_.find(slot);
    if (it == loads_.end()) return false;
    if (it->second.wait.segment == kNoSegment) {
      drop_load(slot);  // it keeps no memory while waiting; retried when some is freed
    } else {
      prefetch_stale_ = true;  // the segment is being made
    }
    return false;
  }
  it->second.queued = false;
  begin_reads(slot, it->second);
  return true;
}

// A requested load waits for memory: read-ahead must not hold any.
void Pager::cancel_queued_prefetches() {
  std::vector<std::uint32_t> waiting;
  for (const auto& [slot, load] : loads_) {
    if (load.is_prefetch && load.queued) waiting.push_back(slot);
  }
  for (const std::uint32_t slot : waiting)
    drop_load(slot);
}

}  // namespace entrepot
