#include "store/paging/prefetcher.h"

#include <algorithm>
#include <utility>
#include <vector>

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

std::uint32_t Prefetcher::policy_number(std::uint32_t slot) const {
  const Slot& entry = deps_.catalog.directory().at(slot);
  return deps_.sets.policy_number(entry.session, entry.locality_set);
}

void Prefetcher::track(std::uint32_t slot) {
  if (deps_.catalog.blobs_of(slot).empty()) return;
  read_ahead_.add(slot, policy_number(slot), deps_.catalog.directory().generation(slot));
}

void Prefetcher::object_ended(std::uint32_t slot) {
  targets_.erase(slot);
  read_ahead_.remove(slot);
}

void Prefetcher::set_changed(std::uint32_t slot) { read_ahead_.move(slot, policy_number(slot)); }

void Prefetcher::was_used(std::uint32_t slot, std::uint32_t reader) {
  const ReadPattern declared = deps_.candidates.policy().attributes(policy_number(slot)).reading;
  const std::uint64_t steps = read_ahead_.steps();
  read_ahead_.touch(slot, reader, declared, deps_.clock.monotonic_ns());
  if (read_ahead_.steps() == steps) return;
  is_stale_ = true;
  poll_interval_ns_ = kPollNs;
}

void Prefetcher::apply_read_log() {
  const std::uint64_t now = deps_.clock.monotonic_ns();
  const DirectoryWriter& directory = deps_.catalog.directory();
  deps_.pins.drain([&](std::uint32_t client, const PinTarget& read) {
    if (!directory.is_live(read.slot, read.generation)) return;
    deps_.candidates.was_read(read.slot, client + 1, now);
    was_used(read.slot, client + 1);
  });
}

// A get of a resident object sends no message. While a run is active and may need loads, the readers' read logs are
// polled, less often the less happens.
void Prefetcher::poll() {
  const std::uint64_t now = deps_.clock.monotonic_ns();
  if (deps_.blobs.spilled_bytes() == 0 || !read_ahead_.is_active(now)) {
    if (!targets_.empty()) is_stale_ = true;
    next_poll_ns_ = UINT64_MAX;
    return;
  }
  if (next_poll_ns_ == UINT64_MAX) next_poll_ns_ = now + kPollNs;
  if (now < next_poll_ns_) return;
  poll_interval_ns_ = std::min(2 * poll_interval_ns_, kMaxPollNs);
  apply_read_log();  // a step resets the interval
  next_poll_ns_ = now + poll_interval_ns_;
}

bool Prefetcher::may_load(std::uint32_t slot) const {
  const DirectoryWriter& directory = deps_.catalog.directory();
  return directory.is_findable(slot) && !directory.hints(slot).dead && !deps_.writer.is_leaving(slot);
}

void Prefetcher::run() {
  if (!std::exchange(is_stale_, false)) return;
  std::vector<std::uint32_t> next;
  targets_.clear();
  std::uint64_t runs = 0;
  std::uint64_t bytes = 0;  // of this run
  std::uint64_t count = 0;
  const auto begin = [&](std::uint64_t all) {
    runs = all;
    bytes = 0;
    count = 0;
  };
  read_ahead_.for_each_ahead(deps_.clock.monotonic_ns(), begin, [&](std::uint32_t slot) {
    if (!may_load(slot)) return true;
    const std::uint64_t default_limit = std::min(deps_.capacity_bytes / kShareOfCapacity, kMaxAheadBytes);
    const std::uint64_t limit = count < 2 ? deps_.capacity_bytes / kShareForTwo : default_limit;
    bytes += deps_.catalog.directory().at(slot).payload_bytes;
    if (bytes > limit / runs || ++count > kMaxAhead) return false;
    if (targets_.insert(slot).second) next.push_back(slot);
    return true;
  });
  if (deps_.loader.has_waiting()) return deps_.loader.cancel_waiting_ahead({});  // requested loads come first
  deps_.loader.cancel_waiting_ahead(targets_);
  for (const std::uint32_t slot : next) {
    if (deps_.loader.bytes_ahead() >= kMaxReadingBytes) return;
    if (deps_.catalog.is_resident(slot)) continue;
    const Loader::Ahead loading = deps_.loader.load_ahead(slot);
    if (loading == Loader::Ahead::kLoading) continue;
    if (loading == Loader::Ahead::kWaiting) is_stale_ = true;  // otherwise tried again when a transfer is done
    return;
  }
}

}  // namespace entrepot
