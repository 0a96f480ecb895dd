#include "plasma/supervisor.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "base/status.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/log.h"
#include "os/process.h"
#include "os/spawn.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint64_t kMinPauseMs = 20;
constexpr std::uint64_t kMaxPauseMs = 2'000;
constexpr std::uint64_t kEarlyDeathNs = 1'000'000'000;

// Waits for a signal that asks to end; false: the deadline came first, or the child ended.
bool is_asked_to_end(int signals, os::Deadline deadline) {
  const auto readable = os::wait_readable(signals, deadline);
  if (!readable.is_ok() || !*readable) return false;
  const auto signal = os::read_signal(signals);
  return signal.is_ok() && (*signal == SIGTERM || *signal == SIGINT);
}

// Until the child has ended; passes on what asks this process to end.
os::ExitStatus wait_for(pid_t child, int signals, bool& ends) {
  while (true) {
    if (const auto ended = os::reap(child)) return *ended;
    if (!is_asked_to_end(signals, os::Deadline::never())) continue;
    ends = true;
    if (const Status sent = os::send_signal(child, SIGTERM); !sent.is_ok()) {
      log_warning("cannot end the front end for Plasma clients: ", sent.to_string());
    }
  }
}

}  // namespace

int supervise(const std::vector<std::string>& arguments) {
  const auto signals = os::create_signal_fd({SIGTERM, SIGINT, SIGCHLD});
  if (!signals.is_ok()) {
    log_error("cannot supervise a front end for Plasma clients: ", signals.status().to_string());
    return kExitFailed;
  }
  os::SpawnOptions options;
  options.program = "/proc/self/exe";
  options.argv = {"entrepot-plasma-store"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.ends_with_parent = true;  // else nobody would start it again, and its socket would be taken
  std::uint64_t pause_ms = kMinPauseMs;
  bool ends = false;
  for (bool is_first = true;; is_first = false) {
    const std::uint64_t began = os::monotonic_ns();
    const auto child = os::spawn(options);
    if (child.is_ok()) {
      const os::ExitStatus ended = wait_for(child->pid, signals->get(), ends);
      const bool is_final = ended.code == 0 || ended.code == kExitUsage || ended.code == kExitNoStore ||
                            (is_first && ended.code == kExitCannotStart);
      if (ends || (!ended.signalled && is_final)) {
        return ended.signalled ? kExitFailed : ended.code;
      }
      log_warning("the front end for Plasma clients ended (", ended.to_string(), ") and is started again");
    } else {
      log_warning("cannot start the front end for Plasma clients: ", child.status().to_string());
    }
    const bool is_early = os::monotonic_ns() - began < kEarlyDeathNs;
    pause_ms = is_early ? std::min(pause_ms * 2, kMaxPauseMs) : kMinPauseMs;
    if (is_asked_to_end(signals->get(), os::Deadline::after_ms(pause_ms))) return 0;
  }
}

}  // namespace entrepot::plasma
