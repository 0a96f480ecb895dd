// Read-ahead loading: within limits, after all requested loads, and only into memory that nobody needs.
#include <algorithm>
#include <utility>

#include "store/pager.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kShareOfCapacity = 16;  // 1/n of the capacity may be read ahead, for all runs together
constexpr std::uint64_t kMostAheadBytes = 256U << 20;
constexpr std::uint64_t kShareForTwo = 4;  // two objects always, if they take no more than 1/n of the capacity
constexpr std::size_t kMostAhead = 64;     // objects
constexpr std::uint64_t kMostReadingBytes = 96U << 20;  // at once: bounds the delay of a requested load
constexpr std::uint64_t kLookNs = 2'000'000;            // polling interval right after a step
constexpr std::uint64_t kLongestLookNs = 64'000'000;

}  // namespace

void Pager::used(std::uint32_t slot, std::uint32_t reader) {
  const Slot& entry = objects_->directory().at(slot);
  const Reading declared = policy_.attributes(sets_->policy_number(entry.session, entry.locality_set)).reading;
  const std::uint64_t steps = read_ahead_.steps();
  read_ahead_.touch(slot, reader, declared, clock_->monotonic_ns());
  if (read_ahead_.steps() == steps) return;
  ahead_stale_ = true;
  look_every_ns_ = kLookNs;
}

// A get of a resident object sends no message. While a run is active and may need loads, the readers' read logs are
// polled, less often the less happens.
void Pager::look_at_readers() {
  const std::uint64_t now = clock_->monotonic_ns();
  if (objects_->spilled_bytes() == 0 || !read_ahead_.is_active(now)) {
    if (!ahead_.empty()) ahead_stale_ = true;
    next_look_ns_ = UINT64_MAX;
    return;
  }
  if (next_look_ns_ == UINT64_MAX) next_look_ns_ = now + kLookNs;
  if (now < next_look_ns_) return;
  look_every_ns_ = std::min(2 * look_every_ns_, kLongestLookNs);
  note_reads();  // a step resets the interval
  next_look_ns_ = now + look_every_ns_;
}

bool Pager::may_load_ahead(std::uint32_t slot) const {
  return objects_->directory().is_findable(slot) && !objects_->directory().hints(slot).dead && !leave_.contains(slot);
}

void Pager::load_ahead() {
  if (!std::exchange(ahead_stale_, false)) return;
  std::vector<std::uint32_t> next;
  ahead_.clear();
  std::uint64_t runs = 0;
  std::uint64_t bytes = 0;  // of this run
  std::uint64_t count = 0;
  const auto begin = [&](std::uint64_t all) {
    runs = all;
    bytes = 0;
    count = 0;
  };
  read_ahead_.for_each_ahead(clock_->monotonic_ns(), begin, [&](std::uint32_t slot) {
    if (!may_load_ahead(slot)) return true;
    const std::uint64_t usual = std::min(options_.capacity_bytes / kShareOfCapacity, kMostAheadBytes);
    const std::uint64_t most = count < 2 ? options_.capacity_bytes / kShareForTwo : usual;
    bytes += objects_->directory().at(slot).payload_bytes;
    if (bytes > most / runs || ++count > kMostAhead) return false;
    if (ahead_.insert(slot).second) next.push_back(slot);
    return true;
  });
  // Drop loads that wait for memory and are no longer ahead of any run.
  std::vector<std::uint32_t> dropped;
  for (const auto& [slot, load] : loads_) {
    if (load.ahead && load.queued && !ahead_.contains(slot)) dropped.push_back(slot);
  }
  for (const std::uint32_t slot : dropped)
    drop_load(slot);
  if (!queue_.empty()) return drop_waiting_ahead();
  for (const std::uint32_t slot : next) {
    if (ahead_bytes_ >= kMostReadingBytes) return;
    if (objects_->is_resident(slot)) continue;
    if (!begin_ahead(slot)) return;
  }
}

// Returns whether the next object may be tried.
bool Pager::begin_ahead(std::uint32_t slot) {
  auto it = loads_.find(slot);
  if (it != loads_.end() && (!it->second.ahead || !it->second.queued)) return true;  // already being loaded
  if (it == loads_.end()) {
    it = loads_.emplace(slot, Load{objects_->directory().generation(slot), {}, {}, true, true}).first;
  }
  if (!place_all(slot, it->second)) {
    it = loads_.find(slot);
    if (it == loads_.end()) return false;
    if (it->second.wait.segment == kNoSegment) {
      drop_load(slot);  // it keeps no memory while waiting; retried when some is freed
    } else {
      ahead_stale_ = true;  // the segment is being made
    }
    return false;
  }
  it->second.queued = false;
  begin_reads(slot, it->second);
  return true;
}

// A requested load waits for memory: read-ahead must not hold any.
void Pager::drop_waiting_ahead() {
  std::vector<std::uint32_t> waiting;
  for (const auto& [slot, load] : loads_) {
    if (load.ahead && load.queued) waiting.push_back(slot);
  }
  for (const std::uint32_t slot : waiting)
    drop_load(slot);
}

}  // namespace entrepot
