// Processes: spawn, watch, signal, reap.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace entrepot::os {

struct SpawnOptions {
  std::string program;            // path; "/proc/self/exe" for ourselves
  int program_fd = -1;            // run instead: that file, whatever lies at its path by now
  std::vector<std::string> argv;  // with argv[0]
  // (descriptor here, number in the child). All other descriptors except 0, 1, 2 are closed in the child.
  std::vector<std::pair<int, int>> fds;
  bool new_session = false;  // setsid: signals to our terminal's group do not reach it
  // Killed when the thread that spawned it ends, until it calls outlive_parent(): half started, it would keep what we
  // had open.
  bool ends_with_parent = false;
  // For the child to exec; one that was not quick enough is killed, and that is kTimeout. 0: it is not waited for, and
  // a failed exec shows as the child's end.
  std::uint64_t exec_wait_ms = 10'000;
};

struct Child {
  pid_t pid = 0;
  UniqueFd pidfd;  // readable when the child has ended; invalid if the kernel has no pidfds
};

// fork and exec, with all signals unblocked and defaulted in the child. A failed exec is reported here, not in the
// child, unless it is not waited for.
[[nodiscard]] Result<Child> spawn(const SpawnOptions& options);

void outlive_parent();  // the end of ends_with_parent

[[nodiscard]] Result<UniqueFd> open_pidfd(pid_t pid);

// A process that is gone already is success.
[[nodiscard]] Status send_signal(pid_t pid, int signal);

struct ExitStatus {
  pid_t pid = 0;
  bool signalled = false;
  int code = 0;  // exit code, or the signal's number
  [[nodiscard]] std::string to_string() const;
};

// Ended children, without waiting, each reaped; `pid` -1 for any (PID 1 must reap strangers too).
[[nodiscard]] std::optional<ExitStatus> reap(pid_t pid = -1);

// Whether a child of ours was stopped (SIGSTOP) or goes on, if that changed since this was asked last; SIGCHLD tells.
[[nodiscard]] std::optional<bool> newly_stopped(pid_t child);

[[nodiscard]] pid_t current_pid();
[[nodiscard]] bool in_first_thread();  // of the process; the thread that forked is the child's
[[nodiscard]] std::uint32_t current_uid();
[[nodiscard]] Result<std::string> self_executable();  // path of the running program
[[nodiscard]] std::string host_name();                // ENTREPOT_NODE, or else the host's own
[[nodiscard]] std::string program_label();            // /proc/self/comm, for people

// Closes every descriptor from `first` up except those in `keep`.
void close_descriptors_from(int first, const std::vector<int>& keep);

// /dev/null on those of 0, 1 and 2 that are closed, or what is opened next would lie there and be taken for a log or
// for what is read. First of all, before anything is opened.
[[nodiscard]] Status open_standard_descriptors();

void yield_cpu();  // lets another thread run

// As many descriptors as this process may have at all: a store holds a few for each client and segment. Best effort.
void raise_descriptor_limit();

// The process group and session of its own, standard input from /dev/null.
[[nodiscard]] Status start_session();

[[nodiscard]] std::uint32_t cpu_count();  // CPUs that this process may use

}  // namespace entrepot::os
