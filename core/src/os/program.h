// Another program: opened with care, asked what it says, run in place of this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/clock.h"

namespace entrepot::os {

// A program that only we or root can change. kInvalidArgument if it is none, kAccessDenied if others could have it do
// what they like.
[[nodiscard]] Result<UniqueFd> open_program(const std::string& path);

// Runs it (an executable file, not a script) and returns the first `limit` bytes of what it writes to standard output
// until it closes that. kTimeout at the deadline. It has ended when this returns: by itself, or killed.
// `with_children`: what it started is killed too; only where no other thread reaps children.
[[nodiscard]] Result<std::string> output_of(const UniqueFd& program, const std::vector<std::string>& argv,
                                            std::uint64_t limit, Deadline deadline, bool with_children = false);

// Runs it in this process; the descriptors in `handed` and 0, 1, 2 stay open, under their numbers. Returns only if that
// failed; then everything is as it was.
[[nodiscard]] Status run_in_place(const UniqueFd& program, const std::vector<std::string>& argv,
                                  const std::vector<int>& handed);

[[nodiscard]] Status set_close_on_exec(int fd, bool closes);

void name_process(const std::string& name);  // as ps and top show it

}  // namespace entrepot::os
