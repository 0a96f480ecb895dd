// SharedAttempt: when several threads need the same action at once, one performs it and all share its failure.
//
// A thread that arrives during an attempt waits, and then finds the action done or fails with the same error: eight
// threads that wait for a dead daemon wait once in total, not one after another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

#include "base/status.h"
#include "client/connection.h"
#include "client/interrupt.h"
#include "os/clock.h"

namespace entrepot {

class SharedAttempt {
 public:
  // `work` returns a Status; it must return success at once if the action was already done. Nobody waits for another
  // thread beyond `limit`. A failure because one thread's own time was up does not count for the others.
  template <class Work>
  [[nodiscard]] Status run(const Interrupt& interrupt, os::Deadline limit, Work&& work) {
    constexpr std::chrono::milliseconds kPoll(5);
    const std::uint64_t before = failures_.load(std::memory_order_acquire);
    // Polled rather than waited for: an interrupt must end this wait, and the thread that has the turn may take long.
    std::unique_lock turn(mutex_, std::try_to_lock);
    while (!turn.owns_lock()) {
      if (interrupt.requested()) return interrupted_status();
      if (limit.passed()) return {Code::kTimeout, "the daemon did not become available in time", true};
      std::this_thread::sleep_for(kPoll);
      static_cast<void>(turn.try_lock());
    }
    if (failures_.load(std::memory_order_relaxed) != before) return failure_;
    Status done = work();
    if (!done.is_ok() && !interrupt.requested() && !limit.passed()) {
      failure_ = done;
      failures_.fetch_add(1, std::memory_order_release);
    }
    return done;
  }

  // In the child of a fork, the thread that had the turn does not exist; it may have been writing failure_.
  void after_fork_in_child() {
    new (&mutex_) std::mutex;
    new (&failure_) Status;
  }

 private:
  std::mutex mutex_;  // held by the thread that has the turn
  std::atomic<std::uint64_t> failures_ = 0;
  Status failure_;  // guarded by mutex_
};

}  // namespace entrepot
