#include "os/process_handle.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/error.h"
#include "os/events.h"
#include "os/files.h"
#include "os/process.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace entrepot::os {

namespace {

constexpr std::uint64_t kPollMs = 5;  // polling interval for /proc

// Fields of /proc/PID/stat, counted from the one after the name.
constexpr std::size_t kState = 0;
constexpr std::size_t kFlags = 6;
constexpr std::size_t kStart = 19;
constexpr std::size_t kPendingSignals = 28;
constexpr std::uint64_t kExitingFlag = 0x4;  // PF_EXITING

// Empty if there is no such process.
std::vector<std::string> stat_fields(pid_t pid) {
  const Result<std::string> stat = read_file(concat("/proc/", pid, "/stat"), 4096);
  if (!stat.is_ok()) return {};
  const std::size_t name_end = stat->rfind(')');  // the name may contain any character
  if (name_end == std::string::npos) return {};
  std::istringstream rest(stat->substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string word; rest >> word;)
    fields.push_back(std::move(word));
  return fields.size() > kPendingSignals ? fields : std::vector<std::string>();
}

bool is_zombie(const std::vector<std::string>& fields) { return fields[kState] == "Z" || fields[kState] == "X"; }

// Start time of a running (or stopped) process; nullopt if it is gone or a zombie.
std::optional<std::uint64_t> start_time(pid_t pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.empty() || is_zombie(fields)) return std::nullopt;
  return std::stoull(fields[kStart]);
}

}  // namespace

bool is_ending(pid_t pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.empty() || is_zombie(fields)) return true;
  const std::uint64_t kill_bit = std::uint64_t{1} << (SIGKILL - 1);
  return (std::stoull(fields[kFlags]) & kExitingFlag) != 0 || (std::stoull(fields[kPendingSignals]) & kill_bit) != 0;
}

ProcessHandle::ProcessHandle(Child child) : pid_(child.pid), pidfd_(std::move(child.pidfd)) {
  if (!pidfd_.valid()) *this = by_number(pid_);
}

ProcessHandle ProcessHandle::open(pid_t pid) {
  ProcessHandle handle;
  if (pid <= 0) return handle;
  Result<UniqueFd> pidfd = open_pidfd(pid);
  if (!pidfd.is_ok()) return by_number(pid);
  handle.pid_ = pid;
  handle.pidfd_ = pidfd.take();
  return handle;
}

ProcessHandle ProcessHandle::of_parent(pid_t expected) {
  if (expected <= 0) return {};
  ProcessHandle handle = open(expected);
  // Checked after opening: if it still is our parent, the number was its own when the handle was opened.
  if (::getppid() != expected) return {};
  return handle;
}

ProcessHandle ProcessHandle::by_number(pid_t pid) {
  ProcessHandle handle;
  const auto started = start_time(pid);
  if (!started) return handle;
  handle.pid_ = pid;
  handle.started_ = *started;
  return handle;
}

bool ProcessHandle::has_exited() const {
  if (pid_ == 0) return true;
  if (!pidfd_.valid()) return start_time(pid_) != started_;
  const auto ended = wait_readable(pidfd_.get(), Deadline::after_ms(0));
  return ended.is_ok() && *ended;
}

Status ProcessHandle::send_signal(int signal) const {
  if (has_exited()) return Status::ok();
  if (!pidfd_.valid()) return os::send_signal(pid_, signal);
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0) == 0 || errno == ESRCH) return Status::ok();
  return errno_status(errno, concat("sending signal ", signal, " to process ", pid_));
}

Status ProcessHandle::kill() const { return send_signal(SIGKILL); }

Result<bool> ProcessHandle::wait_exited(Deadline deadline) const {
  if (pid_ == 0) return true;
  if (pidfd_.valid()) return wait_readable(pidfd_.get(), deadline);
  while (!has_exited()) {
    if (deadline.passed()) return false;
    pause_ms(kPollMs);
  }
  return true;
}

}  // namespace entrepot::os
