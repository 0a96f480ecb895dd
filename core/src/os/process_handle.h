// ProcessHandle: identifies a process so that it can be killed reliably. Before a peer is replaced it is killed,
// because a peer that does not respond may still be alive.
//
// Uses a pidfd, which keeps naming the process even if its number is reused. On kernels without pidfds it uses the
// number and the start time from /proc; fd() is then -1, and has_exited() must be polled.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/status.h"
#include "os/clock.h"
#include "os/spawn.h"
#include "os/unique_fd.h"

namespace entrepot::os {

class ProcessHandle {
 public:
  ProcessHandle() = default;  // no process: gone
  explicit ProcessHandle(Child child);
  // Opens the process with this number. The caller must know that the number is still its own: an unreaped child, or a
  // parent that still is one (see of_parent). A process that is already gone gives an empty handle.
  [[nodiscard]] static ProcessHandle open(pid_t pid);
  // Our parent; an empty handle if that is not (or no longer) `expected`, which has then exited.
  [[nodiscard]] static ProcessHandle of_parent(pid_t expected);
  [[nodiscard]] static ProcessHandle by_number(pid_t pid);  // without a pidfd, for tests

  [[nodiscard]] pid_t pid() const { return pid_; }       // 0: no process
  [[nodiscard]] int fd() const { return pidfd_.get(); }  // readable when it has exited; -1: poll has_exited()
  // True if the process runs no more code and all its descriptors are closed; it may be a zombie.
  [[nodiscard]] bool has_exited() const;
  [[nodiscard]] Status send_signal(int signal) const;               // success if it is already gone
  [[nodiscard]] Status kill() const;                                // SIGKILL, which also ends a stopped process
  [[nodiscard]] Result<bool> wait_exited(Deadline deadline) const;  // false at the deadline

 private:
  pid_t pid_ = 0;
  UniqueFd pidfd_;
  std::uint64_t started_ = 0;  // in clock ticks since boot, if there is no pidfd
};

// Whether the process was killed or exits, or is not there any more. It may still hold its descriptors for a while.
[[nodiscard]] bool is_ending(pid_t pid);

}  // namespace entrepot::os
