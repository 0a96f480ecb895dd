// The daemon's part of an upgrade in place, which takeover.h describes as a whole.
#include <utility>

#include "base/text.h"
#include "daemon/connections.h"
#include "daemon/takeover.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

void ServerState::upgrade(const std::string& path, UpgradeDone done) {
  const Status started =
      program_check.start(path, config_arguments(config), [this, path, done](Result<Program> program) {
        if (!program.is_ok()) return done(program.status());
        link.upgrade(std::move(program->fd), [this, path, version = program->version, done](const Status& taken) {
          if (!taken.is_ok()) return done(taken);
          log_info(path, ", version ", version, ", takes over");
          stop_for_upgrade();
          done(version);
        });
      });
  if (!started.is_ok()) done(started);
}

// Call before answering the request: a client that connects afterwards would be cut off. New clients wait in the
// socket's queue, which the keeper keeps open, and the next daemon accepts them.
void ServerState::stop_for_upgrade() {
  stopping = true;
  handing_over = true;
  poller.remove(link.fd({DescriptorKind::kListenSocket, 0}));
}

// Upgrades to the program now at the path this one was started from: a newer version, if installed in place.
void ServerState::upgrade_to_own_path() {
  constexpr std::string_view kReplaced = " (deleted)";
  const auto log_failure = [](const Result<std::string>& done) {
    if (!done.is_ok()) log_error("upgrade failed: ", done.status().to_string());
  };
  Result<std::string> path = os::self_executable();
  if (!path.is_ok()) return log_failure(path);
  if (path->ends_with(kReplaced)) path->resize(path->size() - kReplaced.size());
  upgrade(*path, log_failure);
}

DaemonStatus ServerState::daemon_status() const {
  const Result<std::string> program = os::self_executable();
  return {static_cast<std::uint32_t>(os::current_pid()), link.keeper_pid(), program.is_ok() ? *program : "",
          log_lines_dropped(), link.keeper_log_lines_dropped()};
}

}  // namespace entrepot
