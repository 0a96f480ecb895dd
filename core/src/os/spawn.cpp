// fork and exec. Between the two only async-signal-safe calls are made: the parent may have threads.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "os/error.h"
#include "os/process.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves the declaration to the program

namespace entrepot::os {

namespace {

// What the child needs, made before fork so that it allocates nothing.
struct Plan {
  std::vector<char*> argv;
  std::vector<std::pair<int, int>> fds;  // copies that lie above every target
  int highest = 2;                       // of the targets
  int report = -1;                       // close-on-exec pipe: errno of a failed exec
  bool new_session = false;
};

[[noreturn]] void fail_child(int report) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof(error));
  ::_exit(127);
}

[[noreturn]] void run_child(const char* program, const Plan& plan) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal)
    ::signal(signal, SIG_DFL);  // fails for those that cannot change
  if (plan.new_session && ::setsid() < 0) fail_child(plan.report);
  for (const auto& [source, target] : plan.fds) {
    if (::dup2(source, target) < 0) fail_child(plan.report);
  }
  // Everything else is closed by exec at the latest: descriptors of ours are close-on-exec, and strangers' are marked.
  for (int fd = 3; fd <= plan.highest; ++fd) {
    const bool wanted =
        std::any_of(plan.fds.begin(), plan.fds.end(), [fd](const auto& pair) { return pair.second == fd; });
    if (!wanted && fd != plan.report) ::close(fd);
  }
#if defined(SYS_close_range)
  // CLOSE_RANGE_CLOEXEC (4): the report pipe must live until exec.
  [[maybe_unused]] const long marked = ::syscall(SYS_close_range, plan.highest + 1, ~0U, 4U);
#endif
  ::execve(program, plan.argv.data(), environ);
  fail_child(plan.report);
}

}  // namespace

Result<Child> spawn(const SpawnOptions& options) {
  Plan plan;
  plan.new_session = options.new_session;
  for (const std::string& word : options.argv)
    plan.argv.push_back(const_cast<char*>(word.c_str()));
  plan.argv.push_back(nullptr);
  for (const auto& [source, target] : options.fds)
    plan.highest = std::max(plan.highest, target);
  // Sources are copied above all targets first, so that no dup2 overwrites a source that is still needed.
  std::vector<UniqueFd> copies;
  for (const auto& [source, target] : options.fds) {
    UniqueFd copy(::fcntl(source, F_DUPFD_CLOEXEC, plan.highest + 1));
    if (!copy.valid()) return errno_status(errno, concat("duplicating descriptor ", source, " for a child"));
    plan.fds.emplace_back(copy.get(), target);
    copies.push_back(std::move(copy));
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status(errno, "making a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(::fcntl(ends[1], F_DUPFD_CLOEXEC, plan.highest + 1));
  ::close(ends[1]);
  if (!write_end.valid()) return errno_status(errno, "duplicating a pipe");
  plan.report = write_end.get();

  const pid_t pid = ::fork();
  if (pid < 0) return errno_status(errno, concat("fork for ", options.program));
  if (pid == 0) run_child(options.program.c_str(), plan);

  write_end.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(read_end.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (got > 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return errno_status(error, concat("starting ", options.program));
  }
  Child child;
  child.pid = pid;
  if (Result<UniqueFd> pidfd = open_pidfd(pid); pidfd.is_ok()) child.pidfd = pidfd.take();
  return child;
}

}  // namespace entrepot::os
