#include "daemon/restart_policy.h"

#include <algorithm>
#include <utility>

namespace entrepot {

void RestartPolicy::started(std::uint64_t now_ns) {
  started_ns_ = now_ns;
  is_ready_ = false;
}

bool RestartPolicy::would_be_early(std::uint64_t now_ns) const {
  return !is_ready_ || now_ns - started_ns_ <= kEarlyDeathNs;
}

bool RestartPolicy::may_restart(std::uint64_t now_ns) {
  std::erase_if(deaths_, [&](std::uint64_t at) { return now_ns - at > kDeathWindowNs; });
  never_ready_ = is_ready_ ? 0 : never_ready_ + 1;
  // A daemon that worked for a while did not die of what it adopted, so the next one may work as well.
  if (!would_be_early(now_ns)) {
    pause_ms_ = kMinPauseMs;
    return true;
  }
  if (deaths_.empty() && never_ready_ <= 1) pause_ms_ = kMinPauseMs;
  deaths_.push_back(now_ns);
  return deaths_.size() < kMaxDeaths && never_ready_ < kMaxDeaths;
}

std::uint64_t RestartPolicy::next_pause_ms() { return std::exchange(pause_ms_, std::min(pause_ms_ * 2, kMaxPauseMs)); }

}  // namespace entrepot
