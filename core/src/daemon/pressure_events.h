// PressureEvents: tells the store at once when others need memory, as far as the kernel has events for that. Without
// them, the store's own look once a second remains.
//
//   not opened ──open()──▶ silent ──follow(true)──▶ following ──an event──▶ the callback, still following
//       └──the kernel has none: logged once──▶ ▲ └──────────follow(false)───────┘
//
// Silent, nothing wakes the daemon, whatever the machine does; what happened in that time is not reported later.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "net/event_loop.h"
#include "os/unique_fd.h"

namespace entrepot {

// Guarded by the daemon's thread.
class PressureEvents {
 public:
  enum class Event : std::uint8_t {
    kStalled,  // processes wait for memory
    kCounted,  // a control group's memory has reached a limit, maybe only because of its page cache
  };
  using Callback = std::function<void(Event)>;

  explicit PressureEvents(EventLoop& loop) : loop_(&loop) {}  // must outlive it

  // `root` is a prefix of /proc and /sys/fs/cgroup, for tests.
  void open(Callback callback, const std::string& root = "");
  void follow(bool on);

  [[nodiscard]] bool has_trigger() const { return trigger_.valid(); }
  [[nodiscard]] bool has_counters() const { return counters_.valid(); }

 private:
  [[nodiscard]] Status follow_trigger();
  [[nodiscard]] Status follow_counters();
  static void give_up_unless(const Status& followed, UniqueFd& source);

  EventLoop* loop_;
  Callback callback_;
  UniqueFd trigger_;
  UniqueFd counters_;
  EventLoop::Watch trigger_watch_;
  EventLoop::Watch counters_watch_;
};

}  // namespace entrepot
