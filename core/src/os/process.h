// Processes: watch, signal and reap; what this process is and which descriptors it has. Starting one: os/spawn.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::os {

[[nodiscard]] Result<UniqueFd> open_pidfd(pid_t pid);

// Success if the process is already gone.
[[nodiscard]] Status send_signal(pid_t pid, int signal);

struct ExitStatus {
  pid_t pid = 0;
  bool signalled = false;
  int code = 0;  // exit code, or the signal's number
  [[nodiscard]] std::string to_string() const;
};

// Reaps an exited child without waiting; `pid` -1: any child (PID 1 must also reap orphans).
[[nodiscard]] std::optional<ExitStatus> reap(pid_t pid = -1);

// Whether our child was stopped (SIGSTOP) or continued, if that changed since the last call; signalled by SIGCHLD.
[[nodiscard]] std::optional<bool> newly_stopped(pid_t child);

[[nodiscard]] pid_t current_pid();
[[nodiscard]] bool in_first_thread();  // the process's main thread; after fork, the thread that forked
[[nodiscard]] std::uint32_t current_uid();
[[nodiscard]] Result<std::string> self_executable();  // path of the running program
[[nodiscard]] std::string host_name();                // ENTREPOT_NODE, otherwise the host name
[[nodiscard]] std::string program_label();            // /proc/self/comm, informational

// Closes every descriptor from `first` up except those in `keep`.
void close_descriptors_from(int first, const std::vector<int>& keep);

// Opens /dev/null on those of 0, 1 and 2 that are closed; otherwise a file opened later would get that number and be
// mistaken for standard input or the log. Call before anything else is opened.
[[nodiscard]] Status open_standard_descriptors();

void yield_cpu();  // lets another thread run

// Raises the descriptor limit to the maximum allowed: a store needs several per client and segment. Best effort.
void raise_descriptor_limit();

// Starts a new process group and session, with standard input from /dev/null.
[[nodiscard]] Status start_session();

[[nodiscard]] std::uint32_t cpu_count();  // CPUs that this process may use

}  // namespace entrepot::os
