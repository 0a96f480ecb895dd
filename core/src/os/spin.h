// SpinGate: decides whether to poll briefly before sleeping.
//
// Sleeping and waking up cost more than a short request takes. Polling pays if the other side runs on another CPU at
// the same time; otherwise it is wasted. A failure costs several times what a success saves, so polling continues only
// while nearly all attempts succeed, and is retried occasionally.
//
//   eager (credit > 0) ──more than one failure in kFailureCost──▶ wary ──one try in kRetryEvery succeeds──▶ eager
#pragma once

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
    if (credit_ == 0 && ++skipped_ % kRetryEvery != 0) return false;
    const std::uint64_t until = monotonic_ns() + max_ns_;
    do {
      if (ready()) {
        credit_ = credit_ < kMaxCredit ? credit_ + 1 : kMaxCredit;
        return true;
      }
    } while (monotonic_ns() < until);
    credit_ = credit_ > kFailureCost ? credit_ - kFailureCost : 0;
    return false;
  }

 private:
  static constexpr std::uint32_t kMaxCredit = 32;
  static constexpr std::uint32_t kFailureCost = 8;  // successes that offset one failure
  static constexpr std::uint32_t kRetryEvery = 64;

  std::uint64_t max_ns_;
  bool possible_;
  std::uint32_t credit_ = kFailureCost;
  std::uint32_t skipped_ = 0;
};

}  // namespace entrepot::os
