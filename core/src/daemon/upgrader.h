// Upgrader: the daemon's part of an upgrade in place, which takeover.h describes as a whole.
//
//   idle ──upgrade()──▶ checking (on a thread) ──it can take over──▶ offered to the keeper ──it has it──▶ taken over
//    ▲                     └──it cannot, and why──▶ ▼                  └──it does not respond──▶ ▼
//    └──────────────────────────────────────────────┴────────────────────────────────────────────┘
//
// Once it is taken over, this daemon hands over after the current turn (server.h).
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "daemon/config.h"
#include "daemon/keeper_link.h"
#include "daemon/program_check.h"
#include "net/event_loop.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Upgrader {
 public:
  // Gets the new program's version once the keeper has it; on error, nothing has changed.
  using Done = std::function<void(const Result<std::string>&)>;

  // `on_taken_over` is called before `done`: a client that is told of the upgrade may connect again at once, and must
  // not reach this daemon any more. Link and configuration must outlive it.
  Upgrader(KeeperLink& link, const DaemonConfig& config, std::function<void()> on_taken_over)
      : link_(link), config_(config), on_taken_over_(std::move(on_taken_over)) {}
  Upgrader(const Upgrader&) = delete;
  Upgrader& operator=(const Upgrader&) = delete;

  [[nodiscard]] Status watch(EventLoop& loop);  // call once, first

  // Makes the program at `path` take over, after asking it whether it can.
  void upgrade(const std::string& path, Done done);
  // Upgrades to the program now at the path this one was started from: a newer version, if installed in place.
  void upgrade_to_own_path();

 private:
  void offer(const std::string& path, Program program, const Done& done);

  KeeperLink& link_;
  const DaemonConfig& config_;
  std::function<void()> on_taken_over_;
  ProgramCheck check_;
  EventLoop::Watch watch_;  // of the check's event
};

}  // namespace entrepot
