#include "daemon/upgrader.h"

#include <string_view>
#include <utility>

#include "daemon/takeover.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

Status Upgrader::watch(EventLoop& loop) {
  RETURN_IF_ERROR(check_.open());
  ASSIGN_OR_RETURN(watch_, loop.watch(check_.event(), Interest::kRead, [this](const os::Ready&) { check_.take(); }));
  return Status::ok();
}

void Upgrader::upgrade(const std::string& path, Done done) {
  const Status started = check_.start(path, config_arguments(config_), [this, path, done](Result<Program> program) {
    if (!program.is_ok()) return done(program.status());
    offer(path, program.take(), done);
  });
  if (!started.is_ok()) done(started);
}

void Upgrader::offer(const std::string& path, Program program, const Done& done) {
  link_.upgrade(std::move(program.fd), [this, path, version = program.version, done](const Status& taken) {
    if (!taken.is_ok()) return done(taken);
    log_info(path, ", version ", version, ", takes over");
    on_taken_over_();
    done(version);
  });
}

void Upgrader::upgrade_to_own_path() {
  constexpr std::string_view kReplaced = " (deleted)";
  const auto log_failure = [](const Result<std::string>& done) {
    if (!done.is_ok()) log_error("upgrade failed: ", done.status().to_string());
  };
  Result<std::string> path = os::self_executable();
  if (!path.is_ok()) return log_failure(path);
  if (path->ends_with(kReplaced)) path->resize(path->size() - kReplaced.size());
  upgrade(*path, log_failure);
}

}  // namespace entrepot
