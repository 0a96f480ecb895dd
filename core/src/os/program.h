// Other programs: open one safely, capture its output, exec it in place of this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace entrepot::os {

// Opens a program that only this user or root can modify. kInvalidArgument if it is not a program, kAccessDenied if
// others could modify it.
[[nodiscard]] Result<UniqueFd> open_program(const std::string& path);

// Runs the program (an executable file, not a script) and returns the first `limit` bytes of its standard output, until
// it closes that. kTimeout at the deadline. The process has exited or was killed when this returns. `with_children`:
// also kills its child processes; use only where no other thread reaps children.
[[nodiscard]] Result<std::string> capture_output(const UniqueFd& program, const std::vector<std::string>& argv,
                                                 std::uint64_t limit, Deadline deadline, bool with_children = false);

// Execs the program in this process. Descriptors 0, 1, 2 and those in `inherited_fds` stay open under the same numbers.
// Returns only on failure, with everything restored.
[[nodiscard]] Status exec_in_place(const UniqueFd& program, const std::vector<std::string>& argv,
                                   const std::vector<int>& inherited_fds);

[[nodiscard]] Status set_close_on_exec(int fd, bool closes);

void set_process_name(const std::string& name);  // as shown by ps and top

}  // namespace entrepot::os
