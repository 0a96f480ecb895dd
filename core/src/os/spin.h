// SpinGate: whether to poll for a moment before sleeping.
//
// Going to sleep and being woken costs more than a short answer takes. Polling instead pays where the other side runs
// on another CPU at the same time, and is waste where it does not. A failure wastes several times what a success gains,
// so polling goes on only while nearly all of it succeeds, and is tried again now and then.
//
//   eager (credit > 0) ──more failures than one in kLoss──▶ wary ──a success of one try in kRetryEvery──▶ eager
#pragma once

#include <cstdint>

#include "os/clock.h"
#include "os/process.h"

namespace entrepot::os {

// Guarded by whoever polls.
class SpinGate {
 public:
  explicit SpinGate(std::uint64_t most_ns) : most_ns_(most_ns), possible_(cpu_count() > 1) {}

  // Calls `ready` until it is true or the time is over; whether it was. False at once where polling does not pay.
  template <class Ready>
  [[nodiscard]] bool poll(Ready&& ready) {
    if (!possible_) return false;
    if (credit_ == 0 && ++skipped_ % kRetryEvery != 0) return false;
    const std::uint64_t until = monotonic_ns() + most_ns_;
    do {
      if (ready()) {
        credit_ = credit_ < kMostCredit ? credit_ + 1 : kMostCredit;
        return true;
      }
    } while (monotonic_ns() < until);
    credit_ = credit_ > kLoss ? credit_ - kLoss : 0;
    return false;
  }

 private:
  static constexpr std::uint32_t kMostCredit = 32;
  static constexpr std::uint32_t kLoss = 8;  // of a failure, in successes
  static constexpr std::uint32_t kRetryEvery = 64;

  std::uint64_t most_ns_;
  bool possible_;
  std::uint32_t credit_ = kLoss;
  std::uint32_t skipped_ = 0;
};

}  // namespace entrepot::os
