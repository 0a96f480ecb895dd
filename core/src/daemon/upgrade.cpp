// The daemon's part of an upgrade in place; takeover.h tells the whole of it.
#include "base/log.h"
#include "base/text.h"
#include "daemon/server_state.h"
#include "daemon/takeover.h"
#include "os/process.h"

namespace entrepot {

Result<std::string> ServerState::upgrade(const std::string& path) {
  ASSIGN_OR_RETURN(const Program program, open_program(path, config_arguments(config)));
  RETURN_IF_ERROR(link.upgrade(program.fd));
  log_info(path, ", version ", program.version, ", takes over");
  stopping = true;
  handing_over = true;
  return program.version;
}

// What lies now where this program was started from: a newer version, if it was installed in place.
void ServerState::upgrade_to_own_path() {
  constexpr std::string_view kReplaced = " (deleted)";
  Result<std::string> path = os::self_executable();
  if (path.is_ok() && path->ends_with(kReplaced)) path->resize(path->size() - kReplaced.size());
  const Status done = path.is_ok() ? upgrade(*path).status() : path.status();
  if (!done.is_ok()) log_error("no upgrade: ", done.to_string());
}

DaemonFacts ServerState::facts() const {
  const Result<std::string> program = os::self_executable();
  return {static_cast<std::uint32_t>(os::current_pid()), link.keeper_pid(), program.is_ok() ? *program : ""};
}

}  // namespace entrepot
