// Starts a program in a child process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::os {

struct SpawnOptions {
  std::string program;            // path; "/proc/self/exe" for this program
  int program_fd = -1;            // if set, run this open file, whatever is at its path now
  std::vector<std::string> argv;  // including argv[0]
  // (our descriptor, number in the child). All other descriptors except 0, 1, 2 are closed in the child.
  std::vector<std::pair<int, int>> fds;
  bool new_session = false;  // setsid: isolates it from signals to our terminal's process group
  // Kills the child when the thread that spawned it ends, until the child calls outlive_parent(): a half-started child
  // would keep our descriptors open.
  bool ends_with_parent = false;
  // Time for the child to exec; after that it is killed (kTimeout). 0: does not wait, and a failed exec shows as the
  // child's exit.
  std::uint64_t exec_wait_ms = 10'000;
};

struct Child {
  pid_t pid = 0;
  UniqueFd pidfd;  // readable when the child has exited; invalid if the kernel has no pidfds
};

// Forks and execs, with all signals unblocked and set to default in the child. A failed exec is reported here, not in
// the child, unless it is not waited for.
[[nodiscard]] Result<Child> spawn(const SpawnOptions& options);

void outlive_parent();  // undoes ends_with_parent

}  // namespace entrepot::os
