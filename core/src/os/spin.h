// SpinGate: decides whether to poll briefly before sleeping.
//
// Sleeping and waking up cost more than a short request takes. Polling pays if the other side runs on another CPU at
// the same time; otherwise it is wasted, and keeps the other side waiting if both share a CPU. A failure costs several
// times what a success saves, so polling continues only while nearly all attempts succeed, and is retried occasionally:
// the more retries have failed, the more seldom, so that the slowest in a hundred requests are not those that retried.
//
//   eager (credit > 0) ──more than one failure in kFailureCost──▶ wary ──a try succeeds──▶ eager
//          each time it becomes wary, or a try fails, it waits twice as long for the next try, until polling pays again
#pragma once

#include <algorithm>
#include <cstdint>

#include "os/clock.h"
#include "os/process.h"

namespace entrepot::os {

// Tells the processor that this thread is polling memory.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Guarded by the thread that polls.
class SpinGate {
 public:
  explicit SpinGate(std::uint64_t max_ns) : max_ns_(max_ns), possible_(cpu_count() > 1) {}

  // Calls `ready` until it returns true or the time is up; returns its last result. False at once if polling does not
  // pay.
  template <class Ready>
  [[nodiscard]] bool poll(Ready&& ready) {
    if (!possible_) return false;
    if (credit_ == 0 && ++skipped_ < retry_after_) return false;
    skipped_ = 0;
    const std::uint64_t until = monotonic_ns() + max_ns_;
    do {
      if (ready()) {
        credit_ = credit_ < kMaxCredit ? credit_ + 1 : kMaxCredit;
        if (credit_ == kMaxCredit) retry_after_ = kMinRetryAfter;  // a single success may be chance
        return true;
      }
    } while (monotonic_ns() < until);
    credit_ = credit_ > kFailureCost ? credit_ - kFailureCost : 0;
    if (credit_ == 0) retry_after_ = std::min(retry_after_ * 2, kMaxRetryAfter);
    return false;
  }

 private:
  static constexpr std::uint32_t kMaxCredit = 32;
  static constexpr std::uint32_t kFailureCost = 8;     // successes that offset one failure
  static constexpr std::uint32_t kMinRetryAfter = 32;  // waits; doubled before the first
  static constexpr std::uint32_t kMaxRetryAfter = 4096;

  std::uint64_t max_ns_;
  bool possible_;
  std::uint32_t credit_ = kFailureCost;
  std::uint32_t retry_after_ = kMinRetryAfter;
  std::uint32_t skipped_ = 0;  // waits without a try, since the last one
};

}  // namespace entrepot::os
