#include "os/clock.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

namespace entrepot::os {

namespace {

std::uint64_t read_clock(clockid_t clock) {
  std::timespec time{};
  ::clock_gettime(clock, &time);  // cannot fail for these clocks
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
std::uint64_t unix_ns() { return read_clock(CLOCK_REALTIME); }

void pause_ms(std::uint64_t ms) {
  timespec left{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1'000'000)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

Deadline Deadline::after_ms(std::uint64_t ms) {
  const std::uint64_t now = monotonic_ns();
  constexpr std::uint64_t kPerMs = 1'000'000;
  if (ms >= (UINT64_MAX - now) / kPerMs) return never();
  return Deadline(now + ms * kPerMs);
}

std::uint64_t Deadline::remaining_ns() const {
  if (is_never()) return UINT64_MAX;
  const std::uint64_t now = monotonic_ns();
  return now >= at_ns_ ? 0 : at_ns_ - now;
}

int Deadline::poll_ms() const {
  if (is_never()) return -1;
  const std::uint64_t ms = (remaining_ns() + 999'999) / 1'000'000;
  return static_cast<int>(std::min<std::uint64_t>(ms, INT_MAX));
}

}  // namespace entrepot::os
