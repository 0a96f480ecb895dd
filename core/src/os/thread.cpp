#include "os/thread.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace entrepot::os {

Status not_started(int error, std::string_view what) {
  const std::string_view limit =
      error == EAGAIN ? ": the limit of processes and threads is reached (ulimit -u of this user, or the control "
                        "group's pids.max): raise it, or end others"
                      : "";
  return Status(
      Code::kStoreUnavailable,
      concat("cannot start ", what, ": ", std::generic_category().message(error), " (errno ", error, ")", limit), true);
}

Result<std::thread> start_thread(std::string_view what, std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& failed) {
    return not_started(failed.code().value(), what);
  }
}

}  // namespace entrepot::os
