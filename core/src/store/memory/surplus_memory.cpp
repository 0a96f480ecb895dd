#include "store/memory/surplus_memory.h"

#include <algorithm>
#include <utility>

namespace entrepot {

namespace {

constexpr std::uint64_t kGiveBackUnitNs = 1'000'000'000;  // of give_back_after_seconds
constexpr std::uint64_t kMaxGiveBackSeconds = 1'000'000'000;
constexpr std::uint64_t kSurplusStepNs = 100'000'000;    // between two steps
constexpr std::uint64_t kSurplusStepBytes = 256U << 20;  // per step: 40 ms of the provisioner's thread

}  // namespace

SurplusMemory::SurplusMemory(Deps deps)
    : deps_(std::move(deps)),
      taken_(deps_.pool.segments_taken()),
      freed_(deps_.pool.segments_freed()),
      timer_(deps_.timers.add([this](std::uint64_t) { give_back(); })) {}

SurplusMemory::Changes SurplusMemory::look() {
  return {std::exchange(taken_, deps_.pool.segments_taken()) != deps_.pool.segments_taken(),
          std::exchange(freed_, deps_.pool.segments_freed()) != deps_.pool.segments_freed()};
}

void SurplusMemory::track() {
  const Changes changes = look();
  if (timer_.is_armed() ? changes.taken : changes.freed) postpone();
}

void SurplusMemory::postpone() {
  if (deps_.give_back_after_seconds == 0) return;
  const std::uint64_t delay_ns = std::min(deps_.give_back_after_seconds, kMaxGiveBackSeconds) * kGiveBackUnitNs;
  timer_.arm(deps_.clock.monotonic_ns() + delay_ns);
}

void SurplusMemory::give_back() {
  if (look().taken || deps_.is_awaited()) return postpone();
  if (deps_.pool.release_surplus(kSurplusStepBytes)) timer_.arm(deps_.clock.monotonic_ns() + kSurplusStepNs);
}

}  // namespace entrepot
