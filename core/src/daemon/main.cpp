// entrepotd. Started by a user, it becomes the keeper and spawns the daemon; the two spawn each other with --role.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/text.h"
#include "daemon/address.h"
#include "daemon/config.h"
#include "daemon/keeper.h"
#include "daemon/spill_settings.h"
#include "daemon/startup.h"
#include "daemon/takeover.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/program.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitCannotStart = 1;
constexpr int kStandardError = 2;

// The exit code tells it too, so if nobody reads standard error, this waits for a second at most.
int fail(const Status& status, int code) {
  const auto writable = os::wait_writable(kStandardError, os::Deadline::after_ms(kFlushLimitMs));
  if (!writable.is_ok() || !*writable) return code;
  [[maybe_unused]] const Status ignored = os::write_text(kStandardError, concat("entrepotd: ", status.message(), "\n"));
  return code;
}

// Terminate handler: logs the reason, which would otherwise be lost in the background log, and aborts.
[[noreturn]] void log_and_abort() {
  std::string why = "no exception";
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "an exception of unknown type";
  }
  log_error("aborting (std::terminate): ", why);
  flush_log();
  std::abort();
}

KeeperOptions keeper_options(const DaemonConfig& config) {
  KeeperOptions options;
  options.daemon_arguments = config_arguments(config);
  options.socket_path = config.socket_path;
  options.ready_fd = config.ready_fd;
  return options;
}

// Everything that can be checked up front is reported here, before anything runs in the background.
int start_store(const DaemonConfig& config) {
  const std::string folder = os::folder_of(config.socket_path);
  if (const Status safe = os::check_folder_safe(folder); !safe.is_ok()) return fail(safe, kExitCannotStart);
  if (const Status fits = check_capacity(config); !fits.is_ok()) return fail(fits, kExitCannotStart);
  // If several start at once, one wins; the lock ends with the store.
  auto lock = lock_address(config.socket_path);
  if (!lock.is_ok()) return fail(lock.status(), kExitCannotStart);
  // Keep the record of a killed store until there is a new store. If the file cannot be written, error messages are
  // less helpful or that record is lost, nothing worse.
  const bool recovered_from_crash = predecessor_was_killed(config.socket_path);
  const auto pid = static_cast<std::uint32_t>(os::current_pid());
  static_cast<void>(write_address_owner(lock->get(), pid, recovered_from_crash));
  auto listening = os::listen_unix(config.socket_path);
  if (!listening.is_ok()) return fail(listening.status(), kExitCannotStart);
  // The address is ours now, so any user of our spill subdirectory is a stranger.
  if (const Status usable = validate_spill_config(os::system_file_io(), config); !usable.is_ok()) {
    remove_unused_spill_subfolders(os::system_file_io(), config);
    if (const Status removed = os::remove_file(config.socket_path); !removed.is_ok()) fail(removed, kExitCannotStart);
    return fail(usable, kExitCannotStart);
  }
  if (!config.log_file.empty()) {
    if (const Status logged = os::redirect_output(config.log_file); !logged.is_ok()) {
      return fail(logged, kExitCannotStart);
    }
  }
  KeeperOptions options = keeper_options(config);
  options.recovered_from_crash = recovered_from_crash;
  Keeper keeper(std::move(options));  // holds the address until this function returns
  const int code = keeper.run_new(listening.take(), lock.take());
  if (code != 0) remove_unused_spill_subfolders(os::system_file_io(), config);
  return code;
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  if (const Status opened = os::open_standard_descriptors(); !opened.is_ok()) return fail(opened, kExitCannotStart);
  auto config = parse_config(arguments);
  if (!config.is_ok()) return fail(config.status(), kExitUsage);
  if (config->show_help) {
    std::fputs(std::string(help_text()).c_str(), stdout);
    return 0;
  }
  if (config->show_version) {
    std::printf("entrepotd %s\n", ENTREPOT_VERSION);
    return 0;
  }
  os::raise_descriptor_limit();
  if (const Status ignored = os::ignore_sigxfsz(); !ignored.is_ok()) return fail(ignored, kExitCannotStart);
  std::set_terminate(log_and_abort);
  log_in_background();
  switch (config->role) {
    case Role::kUser:
      return start_store(*config);
    case Role::kCandidate:
      std::printf("%s\n", candidate_reply().c_str());
      return 0;
    case Role::kKeeper:
      os::set_process_name("entrepotd");  // a keeper run by descriptor would otherwise be named after the descriptor
      if (config->handover_fd >= 0) return Keeper(keeper_options(*config)).run_handover(UniqueFd(config->handover_fd));
      return Keeper(keeper_options(*config)).run_for_daemon(UniqueFd(config->daemon_fd), config->daemon_pid);
    case Role::kDaemon:
      break;
  }
  set_log_role("daemon");
  return run_server(*config, UniqueFd(config->keeper_fd));
}

}  // namespace entrepot

int main(int argc, char** argv) {
  const int code = entrepot::run(std::vector<std::string>(argv + 1, argv + argc));
  entrepot::flush_log();
  return code;
}
