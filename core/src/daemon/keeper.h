// The keeper: holds the descriptors that a store is made of, and starts the daemon again when it dies.
//
//   starting ──daemon spawned──▶ watching ──its process ended, or its channel closed──▶ ending
//      ▲                                                                                 │
//      │                     (killed if it lives on; nothing goes on before it is gone; all that it sent is read)
//      │                                                                                 │
//      ├──after a back-off──no Goodbye, no signal────────────────────────────────────────┤
//      │                                                                                 ├──Goodbye, or a signal──▶
//      │                                                                                 │     ended, exit code 0
//      │                                                                                 ├──too many early deaths in a
//      │                                                                                 │     short time──▶ ended, 1
//      │                                                                                 ├──it started us, and has not
//      │                                                                                 │     sent all──▶ ended, 1
//      └──another program runs in this process◀──Upgrade────────────────────────────────┘
//
// A daemon that is silent is left alone: it may be stopped, and go on at any moment. Only one that has ended is
// replaced, so that never two of them have the store; the lock of the store (os/store_lock.h) stands behind that.
//
// It does next to nothing, so that it has next to nothing to die of. It may be a container's first process: it reaps
// whatever is orphaned to it, and passes SIGTERM, SIGINT and SIGUSR2 on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_channel.h"
#include "os/events.h"
#include "os/process_handle.h"

namespace entrepot {

struct KeeperOptions {
  std::vector<std::string> daemon_arguments;  // passed to each daemon, without role and channel
  std::string socket_path;                    // removed at a clean end
  bool follows_killed = false;                // a store that was killed; told to the daemon
  int ready_fd = -1;  // handed to the first daemon; it writes a line when it accepts connections
};

class Keeper {
 public:
  // Single-threaded: nothing in it is shared.
  explicit Keeper(KeeperOptions options) : options_(std::move(options)) {}

  // A new store: holds the listening socket and its lock, and spawns the first daemon. Returns the exit code.
  [[nodiscard]] int run_new(UniqueFd listening, UniqueFd address_lock);
  // Started by a daemon whose keeper died: takes over what the daemon sends. Returns the exit code.
  [[nodiscard]] int run_for_daemon(UniqueFd channel, std::int32_t daemon_pid);
  // In place of a keeper of another build, which left a list of what it held (takeover.h). Returns the exit code.
  [[nodiscard]] int run_estate(UniqueFd list);

 private:
  static constexpr std::uint64_t kYoungNs = 1'000'000'000;  // who dies younger than this may die of what it adopts
  static constexpr std::uint32_t kMaxDeaths = 10;           // in kDeathWindowNs: then it gives up
  static constexpr std::uint64_t kDeathWindowNs = 30'000'000'000ULL;
  static constexpr std::uint64_t kMinBackoffMs = 10;
  static constexpr std::uint64_t kMaxBackoffMs = 2'000;

  [[nodiscard]] Status prepare();
  [[nodiscard]] int watch();
  [[nodiscard]] Status watch_daemon();
  // Of the poller's events those of the daemon; false: it has ended, or cannot be talked to any more.
  [[nodiscard]] bool take_events(const std::vector<os::Ready>& ready);
  [[nodiscard]] Status end_daemon();
  [[nodiscard]] Status start_daemon();
  void restore();
  void tell_dropped_lines();
  // All that came; false at end-of-file, or when something came that a daemon does not send.
  [[nodiscard]] bool take_messages();
  void take(ReceivedMessage received);
  [[nodiscard]] bool send();
  void hand_over(UniqueFd program, bool may_come_back);
  void go_back();
  void pass_signal();
  void tell_stopped();
  void reap_children();
  [[nodiscard]] bool too_many_deaths();
  [[nodiscard]] int end(int code);

  KeeperOptions options_;
  std::map<HeldTag, UniqueFd> held_;
  UniqueFd next_;             // the program that is to take over when the daemon is gone
  UniqueFd former_;           // the program before this one, until a daemon of this one has worked
  KeeperChannel channel_;     // open until its daemon is known to have ended
  os::ProcessHandle daemon_;  // of the last one
  UniqueFd signals_;
  bool whole_ = true;               // false while a daemon that started us has not sent all that its store is made of
  bool goodbye_ = false;            // the daemon said that it ends
  bool stopping_ = false;           // we were told to end
  bool daemon_is_stopped_ = false;  // as far as was told
  std::uint64_t told_dropped_lines_ = 0;  // of our log, to this daemon
  std::uint64_t backoff_ms_ = kMinBackoffMs;
  std::uint64_t started_ns_ = 0;       // when the daemon was
  std::vector<std::uint64_t> deaths_;  // monotonic times of the last early ones
};

}  // namespace entrepot
