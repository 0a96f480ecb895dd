// SpillFiles from the configuration: fills in defaults and validates directories.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "daemon/config.h"
#include "os/direct_io.h"
#include "spill/spill_files.h"

namespace entrepot {

// Directories (which exist already, or whose parents do) and limits for a store of `capacity_bytes`. The default quota
// is four times the capacity, at most half of the disks' free space; the default reserve is 5 % of the smallest disk,
// at least 1 GiB. kInvalidArgument if the default directory is on a memory file system.
[[nodiscard]] Result<SpillOptions> spill_options(os::FileIo& io, const DaemonConfig& config,
                                                 std::uint64_t capacity_bytes);

// Runs in the foreground, before anything is started. Directories that the user named must work, otherwise
// kAccessDenied and the like with the directory's name. An unusable default directory does not prevent the start.
[[nodiscard]] Status validate_spill_config(os::FileIo& io, const DaemonConfig& config);

// Removes what a failed start created in the spill directories, if nothing was spilled there.
void remove_unused_spill_subfolders(os::FileIo& io, const DaemonConfig& config);

// Null if spilling is off; `disabled_reason` then says why, for people. A full disk is a reason only if `is_new`: a
// restarted daemon has to read what its predecessor wrote, and writes again once there is room.
[[nodiscard]] std::unique_ptr<SpillFiles> open_spill(os::FileIo& io, const DaemonConfig& config, bool is_new,
                                                     std::uint64_t capacity_bytes, const InstanceId& instance,
                                                     SegmentMappings::Open segments, int event_fd,
                                                     std::string& disabled_reason);

}  // namespace entrepot
