// SharedAttempt: threads that need the same thing done at once have it done by one of them, and share its failure.
//
// Whoever comes while another is at it waits, and then either finds it done or fails as the other did: eight threads
// that all wait for a daemon that is gone wait once, not one after another.
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
  // `work` gives a Status, and success at once where it was done before. Nobody waits for another beyond `limit`, and
  // what failed because the time of the one who tried was over has not failed for others.
  template <class Work>
  [[nodiscard]] Status run(const Interrupt& interrupt, os::Deadline limit, Work&& work) {
    constexpr std::chrono::milliseconds kLook(5);
    const std::uint64_t before = failures_.load(std::memory_order_acquire);
    // Looked at now and then, not waited for: an interrupt must end this, and whoever has the turn may take long.
    std::unique_lock turn(mutex_, std::try_to_lock);
    while (!turn.owns_lock()) {
      if (interrupt.requested()) return interrupted_status();
      if (limit.passed()) return {Code::kTimeout, "the daemon did not come back in time", true};
      std::this_thread::sleep_for(kLook);
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

  // In the child of a fork: the thread that had the turn is not there, and may have been writing its failure.
  void after_fork_in_child() {
    new (&mutex_) std::mutex;
    new (&failure_) Status;
  }

 private:
  std::mutex mutex_;  // held by whoever has the turn
  std::atomic<std::uint64_t> failures_ = 0;
  Status failure_;  // guarded by mutex_
};

}  // namespace entrepot
