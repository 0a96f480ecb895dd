#include "store/memory/warm_demand.h"

#include <algorithm>
#include <utility>

namespace entrepot {

std::size_t WarmDemand::first_counting() const {
  const std::uint64_t now_ns = clock_->monotonic_ns();
  std::size_t first = 0;
  while (first < count_ && peaks_.at(first).until_ns + window_ns_ <= now_ns)
    ++first;
  return first;
}

void WarmDemand::note(std::uint64_t in_use_bytes) {
  const std::uint64_t before = std::exchange(in_use_bytes_, in_use_bytes);
  const std::size_t first = first_counting();
  std::copy(peaks_.begin() + static_cast<std::ptrdiff_t>(first), peaks_.begin() + static_cast<std::ptrdiff_t>(count_),
            peaks_.begin());
  count_ -= first;
  // Those that are not above it count no longer.
  const std::uint64_t highest = std::max(before, in_use_bytes);
  while (count_ != 0 && peaks_.at(count_ - 1).bytes <= highest)
    --count_;
  if (in_use_bytes >= before) return;
  const std::uint64_t now_ns = clock_->monotonic_ns();
  const bool is_close = count_ != 0 && now_ns - peaks_.at(count_ - 1).until_ns < window_ns_ / kWindowSteps;
  if (!is_close && count_ < kPeaks) peaks_.at(count_++) = {before, now_ns};
}

std::uint64_t WarmDemand::peak_bytes() const {
  const std::size_t first = first_counting();
  return first < count_ ? std::max(peaks_.at(first).bytes, in_use_bytes_) : in_use_bytes_;
}

}  // namespace entrepot
