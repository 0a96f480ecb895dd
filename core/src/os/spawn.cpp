#include "os/spawn.h"

// fork and exec. Only async-signal-safe calls are made in between, because the parent may have threads.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/error.h"
#include "os/events.h"
#include "os/process.h"
#include "os/process_handle.h"
#include "os/thread.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves the declaration to the program

namespace entrepot::os {

namespace {

// Data for the child, prepared before fork so that the child does not allocate.
struct Plan {
  std::vector<char*> argv;
  std::vector<std::pair<int, int>> fds;  // copies with numbers above all targets
  int highest = 2;                       // highest target
  int report = -1;                       // close-on-exec pipe: errno of a failed exec
  int program_fd = -1;                   // close-on-exec; -1: use the path
  bool new_session = false;
  pid_t ends_with = 0;  // the parent with which it ends; 0: none
};

constexpr std::uint64_t kEndMs = 1'000;  // for a killed child to be gone

[[noreturn]] void fail_child(int report) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof(error));
  ::_exit(127);
}

[[noreturn]] void run_child(const char* program, const Plan& plan) {
  if (plan.ends_with != 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.ends_with) ::_exit(127);  // it exited before PR_SET_PDEATHSIG took effect
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal)
    ::signal(signal, SIG_DFL);  // fails for signals that cannot be changed
  if (plan.new_session && ::setsid() < 0) fail_child(plan.report);
  for (const auto& [source, target] : plan.fds) {
    if (::dup2(source, target) < 0) fail_child(plan.report);
  }
  // exec closes everything else: our descriptors are close-on-exec, and others' are marked so.
  for (int fd = 3; fd <= plan.highest; ++fd) {
    const bool wanted =
        std::any_of(plan.fds.begin(), plan.fds.end(), [fd](const auto& pair) { return pair.second == fd; });
    if (!wanted && fd != plan.report && fd != plan.program_fd) ::close(fd);
  }
#if defined(SYS_close_range)
  // CLOSE_RANGE_CLOEXEC (4): the report pipe must stay open until exec.
  [[maybe_unused]] const long marked = ::syscall(SYS_close_range, plan.highest + 1, ~0U, 4U);
#endif
  if (plan.program_fd >= 0) {
    ::syscall(SYS_execveat, plan.program_fd, "", plan.argv.data(), environ, AT_EMPTY_PATH);
  } else {
    ::execve(program, plan.argv.data(), environ);
  }
  fail_child(plan.report);
}

// Kills the child, and reaps it if it is gone soon; otherwise it is reaped with the other children.
void end_child(Child& child) {
  const pid_t pid = child.pid;
  const ProcessHandle handle(std::move(child));
  [[maybe_unused]] const Status killed = handle.kill();
  [[maybe_unused]] const Result<bool> gone = handle.wait_exited(Deadline::after_ms(kEndMs));
  [[maybe_unused]] const auto reaped = reap(pid);
}

// Waits for the child's exec, or for its report of a failure.
Status wait_for_exec(Child& child, const UniqueFd& report, const SpawnOptions& options) {
  const std::string what = concat("starting ", options.program_fd >= 0 ? options.argv.front() : options.program);
  const Deadline deadline = Deadline::after_ms(options.exec_wait_ms);
  while (true) {
    ASSIGN_OR_RETURN(const bool readable, wait_readable(report.get(), deadline));
    if (!readable) {
      const pid_t pid = child.pid;
      end_child(child);
      return Status(Code::kTimeout,
                    concat(what, ": process ", pid, " did not start the program within ", options.exec_wait_ms,
                           " ms (is it stopped, or is the machine overloaded?) and was killed"),
                    true);
    }
    int error = 0;
    const ssize_t got = ::read(report.get(), &error, sizeof(error));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return Status::ok();  // closed by exec
    end_child(child);
    return errno_status(error, what);
  }
}

}  // namespace

void outlive_parent() { ::prctl(PR_SET_PDEATHSIG, 0); }

Result<Child> spawn(const SpawnOptions& options) {
  Plan plan;
  plan.new_session = options.new_session;
  if (options.ends_with_parent) plan.ends_with = ::getpid();
  for (const std::string& word : options.argv)
    plan.argv.push_back(const_cast<char*>(word.c_str()));
  plan.argv.push_back(nullptr);
  for (const auto& [source, target] : options.fds)
    plan.highest = std::max(plan.highest, target);
  // Copy the sources above all targets first, so that no dup2 overwrites a source that is still needed.
  std::vector<UniqueFd> copies;
  for (const auto& [source, target] : options.fds) {
    UniqueFd copy(::fcntl(source, F_DUPFD_CLOEXEC, plan.highest + 1));
    if (!copy.valid()) return errno_status(errno, concat("duplicating descriptor ", source, " for a child"));
    plan.fds.emplace_back(copy.get(), target);
    copies.push_back(std::move(copy));
  }
  UniqueFd program;
  if (options.program_fd >= 0) {
    program = UniqueFd(::fcntl(options.program_fd, F_DUPFD_CLOEXEC, plan.highest + 1));
    if (!program.valid()) return errno_status(errno, "duplicating the descriptor of a program");
    plan.program_fd = program.get();
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status(errno, "creating a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(::fcntl(ends[1], F_DUPFD_CLOEXEC, plan.highest + 1));
  ::close(ends[1]);
  if (!write_end.valid()) return errno_status(errno, "duplicating a pipe");
  plan.report = write_end.get();

  const pid_t pid = ::fork();
  if (pid < 0) return not_started(errno, concat("a process for ", options.program));
  if (pid == 0) run_child(options.program.c_str(), plan);

  write_end.reset();
  Child child;
  child.pid = pid;
  if (Result<UniqueFd> pidfd = open_pidfd(pid); pidfd.is_ok()) child.pidfd = pidfd.take();
  if (options.exec_wait_ms > 0) RETURN_IF_ERROR(wait_for_exec(child, read_end, options));
  return child;
}

}  // namespace entrepot::os
