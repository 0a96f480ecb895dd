// EventLoop: waits until a descriptor is ready or a deadline has come, and calls its callback.
//
//   turn: waiting ──a descriptor is ready──▶ its callback, until all have been called ──▶ work that follows all events
//            ▲ └──the first deadline has come───────────────────────────────────────────▶ ▲ │
//            └──timers whose deadline has come were called ◀──run_due()─────────────────────┘
//
// dispatch() is the first line. The work that follows, whatever the events were, is up to whoever runs the loop. Work
// may also arrive in memory, without a descriptor; whoever expects such work is asked while the loop polls.
// Everybody who acts at a certain time registers a timer and arms it, from wherever that time changes.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/timers.h"
#include "os/events.h"
#include "os/spin.h"

namespace entrepot {

enum class Interest : std::uint8_t { kHangup, kRead, kReadAndWrite };  // each includes those before it

// Guarded by the daemon's thread.
class EventLoop {
 public:
  using Callback = std::function<void(const os::Ready&)>;
  using Timer = Timers::Timer;  // its times are monotonic; destroy it before the loop

  // A registered descriptor, until it is destroyed or reset, which must happen before the descriptor is closed and
  // before the loop ends. No callback comes after that, not even of events that were already received.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { reset(); }

    void reset();
    [[nodiscard]] bool is_active() const { return loop_ != nullptr; }
    [[nodiscard]] Status change(Interest interest);

   private:
    friend class EventLoop;
    Watch(EventLoop& loop, std::uint64_t key, int fd) : loop_(&loop), key_(key), fd_(fd) {}

    EventLoop* loop_ = nullptr;  // null: nothing is registered
    std::uint64_t key_ = 0;
    int fd_ = -1;
  };

  // Work that arrives in memory, to be done after the events. Both functions are called very often.
  struct MemorySource {
    std::function<bool()> has_work;
    // Called before the thread sleeps; from then on, work has to arrive through a descriptor. False: there is some now.
    std::function<bool()> sleep;
  };

  explicit EventLoop(os::Poller poller) : poller_(std::move(poller)) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // The callback may register and reset watches, its own included.
  [[nodiscard]] Result<Watch> watch(int fd, Interest interest, Callback callback);

  // The same for a descriptor whose events are exceptional conditions (POLLPRI).
  [[nodiscard]] Result<Watch> watch_urgent(int fd, Callback callback);

  void poll_memory(MemorySource source) { memory_ = std::move(source); }

  [[nodiscard]] Timer timer(Timers::Callback callback) { return timers_.add(std::move(callback)); }

  // Waits until a descriptor is ready or the first deadline has come, and calls back for what is ready.
  [[nodiscard]] Status dispatch();
  // Calls the timers whose deadline has come, in the order of the deadlines.
  void run_due();
  // The next event is expected at once: the next wait polls briefly before the thread sleeps.
  void expect_event() { expects_event_ = true; }
  // There is work left for the next turn: the next wait only looks for events.
  void skip_wait() { skips_wait_ = true; }

 private:
  using Callbacks = std::unordered_map<std::uint64_t, Callback>;

  [[nodiscard]] Result<std::vector<os::Ready>> wait();
  void remove(std::uint64_t key, int fd);

  os::Poller poller_;
  Callbacks callbacks_;            // by key
  std::uint64_t next_key_ = 1;     // never reused, so an event cannot reach the next owner of its descriptor's number
  std::uint64_t running_key_ = 0;  // of the callback being called; 0: none
  Callbacks::node_type removed_;   // that callback, if it removed itself, until it returns
  Timers timers_;
  MemorySource memory_;                   // its functions are null if nobody uses it
  std::uint32_t turns_without_look_ = 0;  // at the descriptors
  bool expects_event_ = false;
  bool skips_wait_ = false;
  os::SpinGate polls_{50'000};  // nanoseconds
};

}  // namespace entrepot
