// Idle lease timer: a thread that runs while this process has unused leased memory, and returns it when nothing was
// put for kIdleMs. Otherwise a process that has put once and is idle would keep others from using a segment.
#include <chrono>
#include <thread>

#include "client/client.h"
#include "os/clock.h"
#include "os/fork.h"
#include "os/thread.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kIdleMs = 1'000;
constexpr std::uint64_t kPollMs = 250;

}  // namespace

void Client::start_idle_lease_timer() {
  if (idle_lease_timer_running_.exchange(true)) return;
  const os::BlockedSignals blocked;  // signals are for the program's own threads
  auto thread = os::start_thread("the thread that returns idle memory", [weak = weak_from_this()] {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
      const auto client = weak.lock();
      if (!client || client->closed()) return;
      const std::uint64_t idle_ns = os::monotonic_ns() - client->last_put_ns_.load(std::memory_order_relaxed);
      if (idle_ns < kIdleMs * 1'000'000U) continue;
      client->idle_lease_timer_running_.store(false);  // from here on, a put starts another one
      client->leases_.return_idle({});
      return;
    }
  });
  if (thread.is_ok()) {
    thread->detach();
  } else {
    idle_lease_timer_running_.store(false);  // the next put tries again, close() returns all
  }
}

}  // namespace entrepot
