// Memory pressure, as events of the kernel instead of figures to look at: pressure stall triggers and the counters of
// control groups.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::os {

// What a trigger waits for: some process waited for memory during a tenth of two seconds. Shorter windows are for
// privileged processes only.
inline constexpr std::string_view kStallTrigger = "some 200000 2000000";

// A descriptor with the exceptional condition POLLPRI, at most once per window, when processes of our control group
// waited that long; of the machine, if the group is not of version 2 or its file cannot be written. kUnsupportedType,
// with the reasons, if there is neither. `root` is a prefix of /proc and /sys/fs/cgroup, for tests.
[[nodiscard]] Result<UniqueFd> open_stall_trigger(const std::string& root = "");

// A descriptor that is readable once a counter of our control group or of a parent has changed: its memory has reached a
// limit or was protected against that, or a process was killed for it. kUnsupportedType if no such group is known.
[[nodiscard]] Result<UniqueFd> open_memory_events(const std::string& root = "");
void clear_memory_events(int fd);

}  // namespace entrepot::os
