#include "os/memory_pressure.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "os/error.h"
#include "os/memory_info.h"

namespace entrepot::os {
namespace {

Result<UniqueFd> open_trigger(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return errno_status(errno, concat("opening ", path));
  // The kernel wants the text with its final zero, in one piece.
  const std::string text(kStallTrigger);
  if (::write(file.get(), text.c_str(), text.size() + 1) < 0)
    return errno_status(errno, concat("writing \"", text, "\" to ", path));
  return file;
}

}  // namespace

Result<UniqueFd> open_stall_trigger(const std::string& root) {
  std::string reasons;
  for (const std::string& path : memory_pressure_files(root)) {
    Result<UniqueFd> trigger = open_trigger(path);
    if (trigger.is_ok()) return trigger;
    reasons += concat(reasons.empty() ? "" : "; ", trigger.status().message());
  }
  return Status(Code::kUnsupportedType, concat("no trigger for memory pressure: ", reasons));
}

Result<UniqueFd> open_memory_events(const std::string& root) {
  UniqueFd events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!events.valid()) return errno_status(errno, "inotify_init1");
  std::string reasons;
  bool is_any = false;
  for (const std::string& path : memory_events_files(root)) {
    if (::inotify_add_watch(events.get(), path.c_str(), IN_MODIFY) >= 0) {
      is_any = true;
    } else {
      reasons += concat(reasons.empty() ? "" : "; ", errno_status(errno, concat("following ", path)).message());
    }
  }
  if (is_any) return events;
  return Status(Code::kUnsupportedType, concat("no events of a control group's memory: ",
                                               reasons.empty() ? "it is not of version 2" : reasons));
}

void clear_memory_events(int fd) {
  alignas(inotify_event) std::array<char, 4096> events{};
  while (::read(fd, events.data(), events.size()) > 0 || errno == EINTR) {
  }
}

}  // namespace entrepot::os
