#include "os/program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "os/error.h"
#include "os/events.h"
#include "os/log.h"
#include "os/spawn.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves the declaration to the program

namespace entrepot::os {

namespace {

std::string path_of(const UniqueFd& program) { return concat("/proc/self/fd/", program.get()); }

Result<std::string> read_until_end(int fd, std::uint64_t limit, Deadline deadline) {
  std::string text;
  std::array<char, 1024> piece{};
  while (text.size() < limit) {
    ASSIGN_OR_RETURN(const bool readable, wait_readable(fd, deadline));
    if (!readable) return Status(Code::kTimeout, "program did not finish responding before the timeout");
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(errno, "reading a program's output");
    if (got == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (text.size() > limit) text.resize(limit);
  return text;
}

// The child may have exited and been reaped by another thread: a pidfd cannot hit another process.
void end_child(const Child& child) {
#if defined(SYS_pidfd_send_signal)
  if (child.pidfd.valid()) {
    [[maybe_unused]] const long killed = ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), SIGKILL, nullptr, 0U);
    return;
  }
#endif
  [[maybe_unused]] const int killed = ::kill(child.pid, SIGKILL);
}

}  // namespace

Result<UniqueFd> open_program(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errno_status(errno, concat("opening the program ", path));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return errno_status(errno, concat("stat of ", path));
  if (!S_ISREG(info.st_mode) || (info.st_mode & 0111U) == 0) {
    return Status(Code::kInvalidArgument, concat(path, " is not an executable file"));
  }
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Status(Code::kAccessDenied, concat(path, " belongs to user ", info.st_uid,
                                              ", who could modify it: run your own "
                                              "copy"));
  }
  if ((info.st_mode & 0022U) != 0) {
    return Status(Code::kAccessDenied, concat(path, " is writable by other users; run: chmod go-w ", path));
  }
  return fd;
}

Result<std::string> capture_output(const UniqueFd& program, const std::vector<std::string>& argv, std::uint64_t limit,
                                   Deadline deadline, bool with_children) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status(errno, "creating a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  SpawnOptions spawning;
  spawning.program_fd = program.get();
  spawning.ends_with_parent = true;
  spawning.new_session = with_children;
  spawning.argv = argv;
  spawning.fds = {{write_end.get(), STDOUT_FILENO}};
  ASSIGN_OR_RETURN(const Child child, spawn(spawning));
  write_end.reset();
  Result<std::string> text = read_until_end(read_end.get(), limit, deadline);
  if (with_children) {
    [[maybe_unused]] const int killed = ::kill(-child.pid, SIGKILL);
  }
  end_child(child);
  while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

Status exec_in_place(const UniqueFd& program, const std::vector<std::string>& argv,
                     const std::vector<int>& inherited_fds) {
  std::vector<char*> words;
  for (const std::string& word : argv)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Status status;
  for (const int fd : inherited_fds) {
    if (status.is_ok()) status = set_close_on_exec(fd, false);
  }
  if (status.is_ok()) {
    flush_log();  // the log's writer thread ends with this program
    const std::string path = path_of(program);
    ::execve(path.c_str(), words.data(), environ);
    status = errno_status(errno, "executing the new program");
  }
  for (const int fd : inherited_fds) {
    const Status restored = set_close_on_exec(fd, true);
    if (!restored.is_ok()) return restored;
  }
  return status;
}

Status set_close_on_exec(int fd, bool closes) {
  if (::fcntl(fd, F_SETFD, closes ? FD_CLOEXEC : 0) != 0) {
    return errno_status(errno, concat("changing the flags of descriptor ", fd));
  }
  return Status::ok();
}

void set_process_name(const std::string& name) {
  [[maybe_unused]] const int named = ::prctl(PR_SET_NAME, name.c_str());
}

}  // namespace entrepot::os
