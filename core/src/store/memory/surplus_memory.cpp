#include "store/memory/surplus_memory.h"

#include <algorithm>
#include <utility>

namespace entrepot {

namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kMaxGiveBackSeconds = 1'000'000'000;
constexpr std::uint64_t kLookNs = 1'000'000'000;         // between two looks at the machine's memory
constexpr std::uint64_t kSurplusStepNs = 100'000'000;    // between two steps
constexpr std::uint64_t kHoleStepNs = 20'000'000;        // between two steps of the daemon's own thread
constexpr std::uint64_t kHoleStepBytes = 64U << 20;      // per step
constexpr std::uint64_t kSurplusStepBytes = 256U << 20;  // per step: 40 ms of the provisioner's thread

}  // namespace

SurplusMemory::SurplusMemory(Deps deps)
    : deps_(std::move(deps)),
      demand_(deps_.clock, std::min(deps_.give_back_after_seconds, kMaxGiveBackSeconds) * kNsPerSecond),
      timer_(deps_.timers.add([this](std::uint64_t) { look(); })) {}

SurplusMemory::Counters SurplusMemory::read() const {
  return {deps_.pool.segments_taken(), deps_.pool.segments_freed(), deps_.pool.segments_orphaned(),
          deps_.pool.committed_bytes()};
}

void SurplusMemory::track() {
  const Counters now = read();
  if (std::exchange(seen_, now) == now && started_) return;
  // What a restarted daemon adopts was in use until now, as far as it knows.
  if (!std::exchange(started_, true)) demand_.note(now.committed_bytes - deps_.pool.provisioning_bytes());
  demand_.note(deps_.pool.in_use_bytes());
  if (deps_.give_back_after_seconds == 0 || now.committed_bytes == 0 || timer_.is_armed()) return;
  look_at(deps_.clock.monotonic_ns() + kLookNs);
}

void SurplusMemory::others_need_memory(bool is_stalled) {
  if (!timer_.is_armed()) return;
  const std::uint64_t now_ns = deps_.clock.monotonic_ns();
  if (!is_stalled) return look_at(std::max(now_ns, looked_ns_ + kSurplusStepNs));  // such events may come all the time
  demand_.forget();
  look_at(now_ns);
}

void SurplusMemory::look_at(std::uint64_t time_ns) {
  timer_.arm(time_ns);
  if (!std::exchange(follows_pressure_, true)) deps_.pool.follow_pressure(true);
}

void SurplusMemory::look_no_more() {
  if (std::exchange(follows_pressure_, false)) deps_.pool.follow_pressure(false);
}

void SurplusMemory::look() {
  const std::uint64_t now_ns = deps_.clock.monotonic_ns();
  looked_ns_ = now_ns;
  if (deps_.is_awaited()) return look_at(now_ns + kLookNs);
  if (deps_.pool.release_holes(kHoleStepBytes)) return look_at(now_ns + kHoleStepNs);
  if (demand_.kept_bytes() != 0 && deps_.pool.machine_is_short()) demand_.forget();
  const SegmentPool::Surplus left = deps_.pool.release_surplus(kSurplusStepBytes, demand_.kept_bytes());
  if (left == SegmentPool::Surplus::kMore) return look_at(now_ns + kSurplusStepNs);
  if (left == SegmentPool::Surplus::kKept) return look_at(now_ns + kLookNs);
  look_no_more();
}

}  // namespace entrepot
