// Timers: callbacks that are called when their deadlines have come.
//
//   timer: idle ──arm──▶ armed ──its deadline has come──▶ due ──called──▶ idle, unless its callback armed it again
//           ▲             │                               │
//           └──disarm─────┴───────────────────────────────┘
//
// The owner waits until next_ns(), and then calls run_due().
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/deadline_heap.h"

namespace entrepot {

// Guarded by the thread that runs them.
class Timers {
 public:
  using Callback = std::function<void(std::uint64_t now_ns)>;

  // A registered callback, until it is destroyed, which must happen before the timers are. It is not called after that.
  class Timer {
   public:
    Timer() = default;  // none: arming it has no effect
    Timer(Timer&& other) noexcept { *this = std::move(other); }
    Timer& operator=(Timer&& other) noexcept;
    ~Timer() { reset(); }

    void reset();
    // Calls back once at that time, instead of at any time set before; kNoDeadline: never. A time that has come already
    // is due at once, but not in the round that is running.
    void arm(std::uint64_t at_ns);
    void arm_if_idle(std::uint64_t at_ns) {
      if (!is_armed()) arm(at_ns);
    }
    void arm_no_later(std::uint64_t at_ns) {
      if (at_ns < deadline_ns()) arm(at_ns);
    }
    void disarm() { arm(kNoDeadline); }
    [[nodiscard]] bool is_armed() const { return deadline_ns() != kNoDeadline; }
    [[nodiscard]] std::uint64_t deadline_ns() const;  // kNoDeadline: idle

   private:
    friend class Timers;
    Timer(Timers& timers, std::uint32_t handle) : timers_(&timers), handle_(handle) {}

    Timers* timers_ = nullptr;  // null: nothing is registered
    std::uint32_t handle_ = 0;
  };

  Timers() = default;
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  [[nodiscard]] Timer add(Callback callback);

  [[nodiscard]] std::uint64_t next_ns() const { return heap_.next_ns(); }
  // Calls those whose deadlines have come, in the order of the deadlines. A callback may register, arm, disarm and
  // destroy timers, its own included; what it makes due is left for the next round. Called from a callback, this does nothing.
  void run_due(std::uint64_t now_ns);

 private:
  struct Entry {
    Callback callback;
    std::uint64_t due_ns = kNoDeadline;  // its deadline, while it is in due_ and still to be called
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  void remove(std::uint32_t handle);

  DeadlineHeap<Entry> heap_;
  std::vector<std::uint32_t> due_;  // handles, of this round
  bool in_round_ = false;
  std::uint32_t running_ = kNone;  // the handle whose callback is being called, unless it was removed
};

}  // namespace entrepot
