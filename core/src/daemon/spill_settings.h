// From the configuration to cold storage: defaults filled in, folders tried at the door.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "daemon/config.h"
#include "daemon/spill_files.h"
#include "os/direct_io.h"

namespace entrepot {

// Folders (which exist already, or their parents do) and limits of a store of `capacity_bytes`. The default quota is
// four times the capacity, at most half of what the disks have free; the default reserve is 5 % of the smallest disk,
// at least 1 GiB. kInvalidArgument if the default folder lies in memory.
[[nodiscard]] Result<SpillOptions> spill_options(os::FileIo& io, const DaemonConfig& config,
                                                 std::uint64_t capacity_bytes);

// In the foreground, before anything is started: folders that the user named must work, kAccessDenied and the like with
// the folder's name otherwise. A default folder that does not work is no reason not to start.
[[nodiscard]] Status check_spill_door(os::FileIo& io, const DaemonConfig& config);

// Null if nothing is to be spilled; `why_not` then says why, for people.
[[nodiscard]] std::unique_ptr<SpillFiles> open_spill(os::FileIo& io, const DaemonConfig& config,
                                                     std::uint64_t capacity_bytes, const InstanceId& instance,
                                                     SegmentMemory::Open segments, int event_fd, std::string& why_not);

}  // namespace entrepot
