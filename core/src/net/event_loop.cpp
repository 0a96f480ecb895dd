#include "net/event_loop.h"

#include <utility>

#include "os/clock.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint32_t kTurnsWithoutLook = 16;  // a system call for each turn would cost as much as the work
constexpr std::uint32_t kMemoryLooks = 32;       // for each look at the descriptors; takes about as long

bool reads(Interest interest) { return interest != Interest::kHangup; }
bool writes(Interest interest) { return interest == Interest::kReadAndWrite; }

}  // namespace

EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  reset();
  loop_ = std::exchange(other.loop_, nullptr);
  key_ = other.key_;
  fd_ = other.fd_;
  return *this;
}

void EventLoop::Watch::reset() {
  if (loop_ != nullptr) std::exchange(loop_, nullptr)->remove(key_, fd_);
}

Status EventLoop::Watch::change(Interest interest) {
  if (loop_ == nullptr) return Status(Code::kInternal, "the descriptor is not registered");
  return loop_->poller_.change(fd_, key_, reads(interest), writes(interest));
}

Result<EventLoop::Watch> EventLoop::watch(int fd, Interest interest, Callback callback) {
  const std::uint64_t key = next_key_++;
  RETURN_IF_ERROR(poller_.add(fd, key, reads(interest), writes(interest)));
  callbacks_.emplace(key, std::move(callback));
  return Watch(*this, key, fd);
}

Result<EventLoop::Watch> EventLoop::watch_urgent(int fd, Callback callback) {
  const std::uint64_t key = next_key_++;
  RETURN_IF_ERROR(poller_.add_urgent(fd, key));
  callbacks_.emplace(key, std::move(callback));
  return Watch(*this, key, fd);
}

void EventLoop::remove(std::uint64_t key, int fd) {
  poller_.remove(fd);
  if (key == running_key_) {
    removed_ = callbacks_.extract(key);  // it is not destroyed while it runs
  } else {
    callbacks_.erase(key);
  }
}

Status EventLoop::dispatch() {
  ASSIGN_OR_RETURN(const std::vector<os::Ready> ready, wait());
  for (const os::Ready& event : ready) {
    const auto match = callbacks_.find(event.key);
    if (match == callbacks_.end()) continue;  // removed by an earlier event
    running_key_ = event.key;
    match->second(event);
    running_key_ = 0;
    removed_ = {};
  }
  return Status::ok();
}

Result<std::vector<os::Ready>> EventLoop::wait() {
  const auto look = [this] {
    turns_without_look_ = 0;
    return poller_.wait(os::Deadline::after_ms(0));
  };
  const auto has_work = [this] { return memory_.has_work && memory_.has_work(); };
  if (has_work()) {
    if (++turns_without_look_ < kTurnsWithoutLook) return std::vector<os::Ready>{};
    return look();
  }
  const std::uint64_t next = std::exchange(skips_wait_, false) ? 0 : timers_.next_ns();
  const std::uint64_t now = os::monotonic_ns();
  const std::uint64_t sleep_ms = next <= now ? 0 : (next - now - 1) / kNsPerMs + 1;
  if (std::exchange(expects_event_, false) && sleep_ms > 0) {
    Result<std::vector<os::Ready>> ready = std::vector<os::Ready>{};
    const bool came = polls_.poll([&] {
      for (std::uint32_t i = 0; memory_.has_work && i < kMemoryLooks; ++i) {
        if (memory_.has_work()) return true;
        os::pause();
      }
      ready = look();
      return !ready.is_ok() || !ready->empty();
    });
    if (came) return ready;
  }
  if (sleep_ms > 0 && memory_.sleep && !memory_.sleep()) return look();
  turns_without_look_ = 0;
  return poller_.wait(os::Deadline::after_ms(sleep_ms));
}

void EventLoop::run_due() { timers_.run_due(os::monotonic_ns()); }

}  // namespace entrepot
