// Warm demand: how much of the memory that became free is worth keeping, judged by what was in use lately. Decides only:
// it knows a clock and what it is told.
//
// Kept is what the store held at its peak within the last window, so a store never has more than it has just needed.
//
//   in use ──less is in use──▶ the difference is kept ──more is in use──▶ kept for what is left of the difference
//                               │
//                               ├──a window after the peak──▶ the next lower peak counts, and finally what is in use
//                               └──forget(): the machine is short──▶ nothing is kept
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "store/types.h"

namespace entrepot {

// Allocates nothing. Guarded by the daemon's thread.
class WarmDemand {
 public:
  // The clock must outlive it.
  WarmDemand(const Clock& clock, std::uint64_t window_ns) : clock_(&clock), window_ns_(window_ns) {}

  void note(std::uint64_t in_use_bytes);  // from now on
  void forget() { count_ = 0; }           // the peaks, not what is in use

  // The most that was in use at any time within the window, now included. Of peaks that follow each other within 1/16
  // of the window, only the highest is remembered.
  [[nodiscard]] std::uint64_t peak_bytes() const;
  [[nodiscard]] std::uint64_t kept_bytes() const { return peak_bytes() - in_use_bytes_; }  // beyond what is in use
  [[nodiscard]] std::uint64_t window_ns() const { return window_ns_; }

 private:
  struct Peak {
    std::uint64_t bytes = 0;
    std::uint64_t until_ns = 0;  // when less was in use
  };
  static constexpr std::uint64_t kWindowSteps = 16;  // peaks are at least this share of the window apart
  static constexpr std::size_t kPeaks = kWindowSteps + 2;
  [[nodiscard]] std::size_t first_counting() const;  // of peaks_

  const Clock* clock_;
  std::uint64_t window_ns_;
  std::uint64_t in_use_bytes_ = 0;
  std::array<Peak, kPeaks> peaks_{};  // the first count_: each is lower, and ended later, than the one before
  std::size_t count_ = 0;
};

}  // namespace entrepot
