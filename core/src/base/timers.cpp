#include "base/timers.h"

#include <optional>
#include <utility>

namespace entrepot {

Timers::Timer& Timers::Timer::operator=(Timer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  timers_ = std::exchange(other.timers_, nullptr);
  handle_ = other.handle_;
  return *this;
}

void Timers::Timer::reset() {
  if (timers_ != nullptr) std::exchange(timers_, nullptr)->remove(handle_);
}

void Timers::Timer::arm(std::uint64_t at_ns) {
  if (timers_ == nullptr) return;
  timers_->heap_.owner(handle_).due_ns = kNoDeadline;
  timers_->heap_.arm(handle_, at_ns);
}

std::uint64_t Timers::Timer::deadline_ns() const {
  if (timers_ == nullptr) return kNoDeadline;
  const std::uint64_t due_ns = timers_->heap_.owner(handle_).due_ns;
  return due_ns != kNoDeadline ? due_ns : timers_->heap_.deadline_ns(handle_);
}

Timers::Timer Timers::add(Callback callback) { return Timer(*this, heap_.add({std::move(callback)})); }

void Timers::remove(std::uint32_t handle) {
  heap_.remove(handle);
  if (handle == running_) running_ = kNone;
}

void Timers::run_due(std::uint64_t now_ns) {
  if (std::exchange(in_round_, true)) return;
  while (const std::optional<std::uint32_t> handle = heap_.first_due(now_ns)) {
    heap_.owner(*handle).due_ns = heap_.deadline_ns(*handle);
    heap_.disarm(*handle);
    due_.push_back(*handle);
  }
  for (const std::uint32_t handle : due_) {
    // An earlier one may have armed, disarmed or removed it; a timer that was given its handle is not due.
    if (!heap_.is_used(handle) || heap_.owner(handle).due_ns == kNoDeadline) continue;
    heap_.owner(handle).due_ns = kNoDeadline;
    running_ = handle;
    Callback callback = std::move(heap_.owner(handle).callback);  // it is not destroyed while it runs
    callback(now_ns);
    if (std::exchange(running_, kNone) == handle) heap_.owner(handle).callback = std::move(callback);
  }
  due_.clear();
  in_round_ = false;
}

}  // namespace entrepot
