// KeeperLink: the daemon's side of the keeper's channel, and the owner of every descriptor that outlives the daemon.
//
//   linked ──the keeper's process ended─────────────────────────────▶ starting
//     │                                                                ▲    │
//     └──its channel broke, though it lives──▶ ending ──killed, gone───┘    │
//                                                ▲                          │
//   starting (a new keeper spawned) ──it says nothing for long──────────────┤
//     ├──it ended, or could not be spawned──▶ alone: the store works on, unprotected, and tries again each second
//     └──it is ready──▶ filling (all is sent to it) ──all sent──▶ linked
//
// A keeper that is silent is left alone for ever once it was linked: it may be stopped, and go on at any moment as a
// keeper that takes its daemon for dead. One that is replaced is known to have ended before.
//
// Nothing here waits for the keeper. hold() sends, or queues what the keeper's socket has no room for; what lies in
// held memory may be published, and a client served, once is_safe().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_channel.h"
#include "os/events.h"
#include "os/process_handle.h"

namespace entrepot {

// Guarded by the daemon's thread.
class KeeperLink {
 public:
  // `keeper_arguments`: for a keeper that this daemon has to start, without role and channel.
  KeeperLink(UniqueFd channel, std::vector<std::string> keeper_arguments)
      : channel_(std::move(channel)), keeper_arguments_(std::move(keeper_arguments)) {}

  // First thing: what the keeper, our parent, held for the former daemon, the listening socket at least. Waits for as
  // long as the keeper lives.
  [[nodiscard]] Status take_over();

  // Takes the descriptor; from now on fd(tag) is it.
  void hold(const HeldTag& tag, UniqueFd fd);
  // The next daemon will have it, as far as that can be had: while there is no keeper, nothing is waited for.
  [[nodiscard]] bool is_safe(const HeldTag& tag) const;
  void drop(const HeldTag& tag);
  [[nodiscard]] int fd(const HeldTag& tag) const;  // -1: not held
  [[nodiscard]] const std::map<HeldTag, UniqueFd>& all() const { return held_; }

  // For a poller, the same for good: when readable, on_event(). And tick() at that time (UINT64_MAX: never).
  [[nodiscard]] int event_fd() const { return poller_ ? poller_->fd() : -1; }
  void on_event();
  [[nodiscard]] std::uint64_t next_tick_ns() const;
  void tick();

  // Of the keeper that has everything. While another is being started in its place: still its number; 0 while alone.
  [[nodiscard]] std::uint32_t keeper_pid() const { return keeper_pid_; }

  // Lines of its log that were dropped, as it said last.
  [[nodiscard]] std::uint64_t keeper_log_lines_dropped() const { return keeper_log_lines_dropped_; }

  // When this daemon has ended, the keeper's process runs this program. `done` is told once, perhaps at once: the
  // keeper has it, or nothing changed and why.
  using Done = std::function<void(const Status&)>;
  void upgrade(UniqueFd program, Done done);

  // A clean stop: the keeper ends too, and starts no daemon.
  void goodbye();

 private:
  enum class State : std::uint8_t { kLinked, kEnding, kStarting, kFilling, kAlone };
  struct Upgrade {
    std::uint64_t number = 0;  // of the Upgrade message, which its Ack repeats
    std::uint64_t until_ns = 0;
    Done done;
  };

  [[nodiscard]] Status watch();
  void take_messages();
  void take(const KeeperMessage& message);
  void send();
  void lose(const Status& why);
  void end_keeper(std::uint64_t grace_ns);
  void keeper_ended();
  void start_keeper();
  [[nodiscard]] Status spawn_keeper();
  void fill();
  void finish_upgrade(const Status& status);
  [[nodiscard]] bool takes_messages() const { return state_ == State::kLinked || state_ == State::kFilling; }
  // It has, or is being given, what a daemon is started with; one that is being ended takes nothing any more.
  [[nodiscard]] bool may_restore() const { return takes_messages() || state_ == State::kEnding; }

  State state_ = State::kLinked;
  KeeperChannel channel_;  // open until its keeper is known to have ended
  os::ProcessHandle keeper_;
  std::optional<os::Poller> poller_;  // of channel_ and keeper_
  bool watches_write_ = false;
  std::uint64_t state_until_ns_ = UINT64_MAX;  // ending: then it is killed; starting: then given up; alone: tried again
  std::vector<std::string> keeper_arguments_;
  std::map<HeldTag, UniqueFd> held_;
  std::uint32_t keeper_pid_ = 0;
  std::uint64_t keeper_log_lines_dropped_ = 0;
  std::optional<Upgrade> upgrade_;
  std::uint64_t next_upgrade_ = 1;
};

}  // namespace entrepot
