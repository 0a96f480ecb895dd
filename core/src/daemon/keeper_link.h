// KeeperLink: the daemon's side of the keeper channel; owns every descriptor that outlives the daemon.
//
//   linked ──the keeper's process ended────────────────────────────────▶ starting
//     │                                                                   ▲    │
//     └──its channel broke, but it is alive──▶ ending ──killed and gone───┘    │
//                                                ▲                             │
//   starting (a new keeper was spawned) ──no message for long──────────────────┤
//     ├──it ended, or could not be spawned──▶ alone: the store works on, unprotected, and retries each second
//     └──it is ready──▶ filling (everything is sent to it) ──all sent──▶ linked
//
// Once linked, a silent keeper is left alone indefinitely: it may be stopped, and later continue and take its daemon
// for dead. A keeper is replaced only once it is known to have ended.
//
// Nothing here waits for the keeper. hold() sends, or queues what the keeper's socket has no room for; what lies in
// held memory may be published, and a client served, once is_held_by_keeper().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/keeper_channel.h"
#include "net/event_loop.h"
#include "os/process_handle.h"
#include "os/unique_fd.h"

namespace entrepot {

// Guarded by the daemon's thread.
class KeeperLink {
 public:
  // The loop must outlive it. `keeper_arguments`: for a keeper that this daemon starts; without role and channel.
  // `upgrade_ns`: for the keeper to accept another program.
  KeeperLink(EventLoop& loop, UniqueFd channel, std::vector<std::string> keeper_arguments,
             std::uint64_t upgrade_ns = 10'000'000'000);
  KeeperLink(const KeeperLink&) = delete;
  KeeperLink& operator=(const KeeperLink&) = delete;

  // Call first: receives what the keeper, our parent, held for the previous daemon, at least the listening socket.
  // Waits as long as the keeper lives.
  [[nodiscard]] Status take_over();

  // Takes the descriptor; fd(tag) returns it from now on.
  void hold(const DescriptorTag& tag, UniqueFd fd);
  // Whether the next daemon will have it, as far as possible: without a keeper, there is nothing to wait for.
  [[nodiscard]] bool is_held_by_keeper(const DescriptorTag& tag) const;
  void drop(const DescriptorTag& tag);
  [[nodiscard]] int fd(const DescriptorTag& tag) const;  // -1: not held
  [[nodiscard]] const std::map<DescriptorTag, UniqueFd>& all() const { return descriptors_; }

  // Called after each event by which more descriptors may be held by the keeper than before.
  void on_progress(std::function<void()> callback) { on_progress_ = std::move(callback); }

  // Process number of the keeper that has everything. Unchanged while its successor is being started; 0 while alone.
  [[nodiscard]] std::uint32_t keeper_pid() const { return keeper_pid_; }

  // Lines dropped from its log, as last reported.
  [[nodiscard]] std::uint64_t keeper_log_lines_dropped() const { return keeper_log_lines_dropped_; }

  // Makes the keeper's process run this program after this daemon has ended. `done` is called once, possibly from
  // within: either the keeper has it, or the status says why nothing changed. That is certain: a request that was sent
  // is answered only when the cancellation was sent too.
  using Done = std::function<void(const Status&)>;
  void upgrade(UniqueFd program, Done done);
  // After an upgrade: lets the keeper end this daemon. `failed` is called if the keeper ends instead.
  void hand_over(std::function<void()> failed);

  // Clients are served from now on: this daemon's death is not a failed start any more.
  void send_ready();

  // Clean shutdown: the keeper ends too, and starts no daemon.
  void send_shutdown();

 private:
  enum class State : std::uint8_t { kLinked, kEnding, kStarting, kFilling, kAlone };
  struct Upgrade {
    std::uint64_t number = 0;  // of the Upgrade message, repeated in its Ack
    Done done;
    bool gave_up = false;  // answered once the cancellation was sent
  };

  [[nodiscard]] Status watch();
  void on_channel_ready(const os::Ready& ready);
  void on_keeper_ready();
  void on_state_timeout(std::uint64_t now_ns);
  void on_upgrade_timeout();
  void poll_keeper(std::uint64_t now_ns);
  void enter(State state, std::uint64_t timeout_ns);
  [[nodiscard]] EventLoop::Timer reporting_timer(Timers::Callback act);  // report_progress() follows each call
  void report_progress() const;
  void take_messages();
  void handle_message(const KeeperMessage& message);
  void send();
  void on_channel_lost(const Status& why);
  void end_keeper(std::uint64_t grace_ns);
  void keeper_ended();
  void start_keeper();
  [[nodiscard]] Status spawn_keeper();
  void fill();
  void take_ack(std::uint64_t number);
  void finish_upgrade(const Status& status);
  [[nodiscard]] bool takes_messages() const { return state_ == State::kLinked || state_ == State::kFilling; }
  // Whether it has, or is being given, the descriptors to start a daemon with; a keeper being ended takes no more.
  [[nodiscard]] bool may_restore() const { return takes_messages() || state_ == State::kEnding; }

  EventLoop& loop_;
  std::function<void()> on_progress_;
  State state_ = State::kLinked;
  KeeperChannel channel_;  // open until its keeper is known to have ended
  os::ProcessHandle keeper_;
  EventLoop::Watch channel_watch_;  // active unless the channel is closed, or its keeper is being ended
  EventLoop::Watch keeper_watch_;   // of the keeper's pidfd, if there is one
  bool watches_write_ = false;      // of channel_watch_
  EventLoop::Timer state_timer_;    // ending: killed then; starting: given up then; alone: retried then
  EventLoop::Timer send_timer_;     // armed while the channel wants to try again later
  EventLoop::Timer upgrade_timer_;  // armed during an upgrade: given up then; again when its cancellation was sent
  EventLoop::Timer poll_timer_;     // armed while there is a keeper without a pidfd
  std::vector<std::string> keeper_arguments_;
  std::map<DescriptorTag, UniqueFd> descriptors_;
  std::uint32_t keeper_pid_ = 0;
  std::uint64_t keeper_log_lines_dropped_ = 0;
  std::uint64_t upgrade_ns_;
  std::optional<Upgrade> upgrade_;
  std::uint64_t next_upgrade_ = 1;
  std::function<void()> hand_over_failed_;  // set from hand_over() on
};

}  // namespace entrepot
