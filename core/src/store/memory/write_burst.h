// Write burst: a large value is being copied into its lease, or several in a row. Making the next large segment meanwhile
// would halve the bandwidth of the copy, so that waits until the burst is over.
//
//   none ──a large lease──▶ burst ──a quarter of a second after the last large lease, or a second in all──▶ none
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/timers.h"
#include "store/types.h"

namespace entrepot {

inline constexpr std::uint64_t kBurstNs = 250'000'000;       // after a lease for a large value, during its copy
inline constexpr std::uint64_t kMaxBurstNs = 1'000'000'000;  // limit, however many such leases follow each other

// Guarded by the daemon's thread.
class WriteBurst {
 public:
  // Both must outlive it. The timers wake their owner at the end of a burst.
  WriteBurst(Timers& timers, const Clock& clock) : clock_(&clock), end_timer_(timers.add([](std::uint64_t) {})) {}

  void extend() {  // a large lease was granted
    const std::uint64_t now_ns = clock_->monotonic_ns();
    if (now_ns >= until_ns_) limit_ns_ = now_ns + kMaxBurstNs;
    until_ns_ = std::min(now_ns + kBurstNs, limit_ns_);
    end_timer_.arm(until_ns_);
  }
  [[nodiscard]] bool in_progress() const { return clock_->monotonic_ns() < until_ns_; }

 private:
  const Clock* clock_;
  std::uint64_t until_ns_ = 0;
  std::uint64_t limit_ns_ = 0;  // upper bound of until_ns_, in this burst
  Timers::Timer end_timer_;
};

}  // namespace entrepot
