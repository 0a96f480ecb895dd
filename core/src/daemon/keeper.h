// Keeper: holds a store's descriptors, and restarts the daemon when it dies.
//
//   starting ──daemon spawned──▶ watching ──daemon ended or hands over, or its channel closed──▶ ending
//
//   ending ─┬─Shutdown, or a signal───────────────────────────────────────▶ exit code 0
//           ├─it had started this keeper, and had not sent everything yet─▶ exit code 1
//           ├─Upgrade──▶ another program runs in this process─────────────▶ starting
//           ├─the first daemon of a new store said that it cannot start──▶ exit code 1
//           ├─too many early deaths (restart_policy.h)────────────────────▶ exit code 1
//           └─otherwise, after a back-off─────────────────────────────────▶ starting
//
// In `ending`, the daemon is killed if it is still alive; nothing else happens until it is gone and everything it sent
// was read.
//
// A silent daemon is left alone: it may be stopped, and continue at any moment. Only a daemon that has ended is
// replaced, so that two never have the store; the store's lock (os/store_lock.h) enforces that.
//
// The keeper does as little as possible, so that as little as possible can kill it. It may be a container's first
// process: it reaps orphans, and forwards SIGTERM, SIGINT and SIGUSR2.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/keeper_channel.h"
#include "daemon/restart_policy.h"
#include "os/events.h"
#include "os/process_handle.h"
#include "os/unique_fd.h"

namespace entrepot {

struct KeeperOptions {
  std::vector<std::string> daemon_arguments;  // for each daemon; without role and channel
  std::string socket_path;                    // removed on a clean shutdown
  bool recovered_from_crash = false;          // the previous store was killed; passed to the daemon
  int ready_fd = -1;  // passed to the first daemon, which writes a line once it accepts connections
};

class Keeper {
 public:
  // Single-threaded: nothing in it is shared.
  explicit Keeper(KeeperOptions options) : options_(std::move(options)) {}

  // For a new store: holds the listening socket and its lock, and spawns the first daemon. Returns the exit code.
  [[nodiscard]] int run_new(UniqueFd listening, UniqueFd address_lock);
  // Started by a daemon whose keeper died: takes over the descriptors that the daemon sends. Returns the exit code.
  [[nodiscard]] int run_for_daemon(UniqueFd channel, std::int32_t daemon_pid);
  // Replaces a keeper of another build, which left a list of what it held (takeover.h). Returns the exit code.
  [[nodiscard]] int run_handover(UniqueFd list);

 private:
  [[nodiscard]] Status prepare();
  [[nodiscard]] int watch();
  [[nodiscard]] Status watch_daemon();
  // Handles the daemon's events; false if the daemon has ended or cannot be reached any more.
  [[nodiscard]] bool take_events(const std::vector<os::Ready>& ready);
  [[nodiscard]] Status end_daemon();
  [[nodiscard]] Status start_daemon();
  void restore();
  void report_dropped_lines();
  // Handles all pending messages; false at end-of-file, or after a message that daemons do not send.
  [[nodiscard]] bool take_messages();
  void handle_message(ReceivedMessage received);
  [[nodiscard]] bool send();
  void exec_program(const UniqueFd& program, bool may_roll_back);
  void roll_back();
  void forward_signal();
  void report_stopped();
  void reap_children();
  [[nodiscard]] int end(int code);

  KeeperOptions options_;
  std::map<DescriptorTag, UniqueFd> descriptors_;
  UniqueFd successor_program_;  // program that takes over when the daemon is gone
  UniqueFd previous_program_;   // kept until a daemon of this program has worked
  bool daemon_hands_over_ = false;
  KeeperChannel channel_;     // open until its daemon is known to have ended
  os::ProcessHandle daemon_;  // most recent one
  UniqueFd signals_;
  bool has_all_descriptors_ = true;           // false until a daemon that started us has sent all of them
  bool shutdown_announced_ = false;           // the daemon announced a clean shutdown
  bool stopping_ = false;                     // by a signal
  bool daemon_is_stopped_ = false;            // as last reported
  std::uint64_t reported_dropped_lines_ = 0;  // of our log, reported to this daemon
  RestartPolicy restarts_;
  bool has_served_ = true;                 // false until the first daemon of a new store is ready
  std::optional<std::int32_t> exit_code_;  // of the latest daemon, if it exited by itself and was our child
};

}  // namespace entrepot
