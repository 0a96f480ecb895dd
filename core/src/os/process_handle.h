// A process that may be ended for certain: whoever replaces a peer ends it first, because silence is not death.
//
// By a pidfd, which goes on naming that process whoever gets its number next. Where the kernel has no pidfds, by number
// and start time, read from /proc: fd() is -1 then, so gone() has to be asked again and again.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/clock.h"
#include "os/process.h"

namespace entrepot::os {

class ProcessHandle {
 public:
  ProcessHandle() = default;  // of nobody: gone
  explicit ProcessHandle(Child child);
  // The process with this number, which must be known to be the one that is meant: a child that is not reaped, or a
  // parent that still is (see of_parent). One that is gone already is a handle of nobody.
  [[nodiscard]] static ProcessHandle open(pid_t pid);
  // Our parent; of nobody if it is not `expected` (any more): then that one has ended.
  [[nodiscard]] static ProcessHandle of_parent(pid_t expected);
  [[nodiscard]] static ProcessHandle by_number(pid_t pid);  // without a pidfd, for tests of that

  [[nodiscard]] pid_t pid() const { return pid_; }       // 0: nobody
  [[nodiscard]] int fd() const { return pidfd_.get(); }  // readable when it has ended; -1: ask gone()
  // It runs nothing any more and all that it had open is closed; it may be a zombie.
  [[nodiscard]] bool gone() const;
  [[nodiscard]] Status send_signal(int signal) const;             // one that is gone already is success
  [[nodiscard]] Status kill() const;                              // SIGKILL, which a stopped process obeys too
  [[nodiscard]] Result<bool> wait_gone(Deadline deadline) const;  // false at the deadline

 private:
  pid_t pid_ = 0;
  UniqueFd pidfd_;
  std::uint64_t started_ = 0;  // in clock ticks after boot, where there is no pidfd
};

}  // namespace entrepot::os
