#include "os/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/text.h"
#include "os/error.h"
#include "os/files.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace entrepot::os {

namespace {
constexpr std::size_t kNodeNameMax = 253;  // the maximum length of a name in Kubernetes
}  // namespace

Result<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // always close-on-exec
  if (!fd.valid()) return errno_status(errno, concat("pidfd_open of process ", pid));
  return fd;
}

Status send_signal(pid_t pid, int signal) {
  if (pid <= 0) return Status(Code::kInvalidArgument, concat("invalid process ID ", pid));
  if (::kill(pid, signal) != 0 && errno != ESRCH) {
    return errno_status(errno, concat("sending signal ", signal, " to process ", pid));
  }
  return Status::ok();
}

std::string ExitStatus::to_string() const {
  if (!signalled) return concat("process ", pid, " exited with code ", code);
  const char* name = ::strsignal(code);
  return concat("process ", pid, " was killed by signal ", code, " (", name != nullptr ? name : "unknown", ")");
}

std::optional<ExitStatus> reap(pid_t pid) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, WNOHANG)) < 0 && errno == EINTR) {
  }
  if (ended <= 0) return std::nullopt;
  if (WIFSIGNALED(status)) return ExitStatus{ended, true, WTERMSIG(status)};
  return ExitStatus{ended, false, WEXITSTATUS(status)};
}

std::optional<bool> newly_stopped(pid_t child) {
  std::optional<bool> stopped;
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
    stopped = info.si_code == CLD_STOPPED;
    info = {};
  }
  return stopped;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  [[maybe_unused]] const int raised = ::setrlimit(RLIMIT_NOFILE, &limit);
}

pid_t current_pid() { return ::getpid(); }
bool in_first_thread() { return ::syscall(SYS_gettid) == ::getpid(); }
std::uint32_t current_uid() { return ::geteuid(); }

Result<std::string> self_executable() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size < 0) return errno_status(errno, "reading /proc/self/exe");
  return std::string(path.data(), static_cast<std::size_t>(size));
}

std::string host_name() {
  // A container's own name does not tell where it runs; its creator knows the node, and passes it.
  if (const char* node = std::getenv("ENTREPOT_NODE"); node != nullptr && *node != '\0') {
    return std::string(node).substr(0, kNodeNameMax);
  }
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string program_label() {
  const Result<std::string> text = read_file("/proc/self/comm", 64);
  if (!text.is_ok()) return "unknown";
  return text->substr(0, text->find('\n'));
}

void close_descriptors_from(int first, const std::vector<int>& keep) {
  DIR* folder = ::opendir("/proc/self/fd");
  std::vector<int> open_fds;
  if (folder != nullptr) {
    while (const dirent* entry = ::readdir(folder)) {
      const std::string_view name = entry->d_name;
      int fd = -1;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fd);
      if (error == std::errc{} && fd != ::dirfd(folder)) open_fds.push_back(fd);
    }
    ::closedir(folder);
  } else {
    const long limit = ::sysconf(_SC_OPEN_MAX);
    for (int fd = first; fd < static_cast<int>(std::min<long>(limit, 1L << 20)); ++fd)
      open_fds.push_back(fd);
  }
  for (const int fd : open_fds) {
    if (fd >= first && std::find(keep.begin(), keep.end(), fd) == keep.end()) ::close(fd);
  }
}

Status open_standard_descriptors() {
  while (true) {
    int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0) fd = ::open("/", O_RDONLY);  // no /dev/null here: uses of this descriptor will fail
    if (fd < 0) return errno_status(errno, "opening /dev/null in place of a closed standard descriptor");
    if (fd <= STDERR_FILENO) continue;  // the lowest free number: keep it
    ::close(fd);
    return Status::ok();
  }
}

void yield_cpu() { ::sched_yield(); }

Status start_session() {
  if (::setsid() < 0 && errno != EPERM) return errno_status(errno, "setsid");  // EPERM: already a group leader
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return errno_status(errno, "opening /dev/null");
  if (::dup2(null.get(), STDIN_FILENO) < 0) return errno_status(errno, "redirecting standard input");
  return Status::ok();
}

std::uint32_t cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<std::uint32_t>(CPU_COUNT(&set));
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<std::uint32_t>(online) : 1;
}

}  // namespace entrepot::os
