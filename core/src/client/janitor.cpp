// The janitor: a thread that lives for as long as this process has leased memory that it does not use, and returns it
// when nothing was put for kIdleMs. Without it a process that has put once and then idles would keep others from a
// segment.
#include <chrono>
#include <system_error>
#include <thread>

#include "client/client.h"
#include "os/clock.h"
#include "os/fork.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kIdleMs = 1'000;
constexpr std::uint64_t kLookMs = 250;

}  // namespace

void Client::start_janitor() {
  if (janitor_running_.exchange(true)) return;
  const os::BlockedSignals blocked;  // signals are for the program's own threads
  try {
    std::thread([weak = weak_from_this()] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
        const auto client = weak.lock();
        if (!client || client->closed()) return;
        const std::uint64_t idle_ns = os::monotonic_ns() - client->last_put_ns_.load(std::memory_order_relaxed);
        if (idle_ns < kIdleMs * 1'000'000U) continue;
        client->janitor_running_.store(false);  // a put from here on starts another
        client->leases_.return_idle({});
        return;
      }
    }).detach();
  } catch (const std::system_error&) {
    janitor_running_.store(false);  // no thread to be had: the next put tries again, close() returns all
  }
}

}  // namespace entrepot
