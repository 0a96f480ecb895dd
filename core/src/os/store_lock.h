// Store lock: its holder is the one process that may change the store's memory.
//
// A record lock (fcntl, F_SETLK) on its own memfd, which is passed from daemon to daemon with the store. Such a lock
// belongs to a process, not to a descriptor: no child holds it, not even one stopped between fork and exec with copies
// of all descriptors, and the kernel releases it only when every thread of the process has ended.
//
// A process that closes any descriptor of the file loses the lock. Therefore the holder has exactly one descriptor of
// it, never duplicates it, and keeps it open for life.
#pragma once

#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace entrepot::os {

[[nodiscard]] Result<UniqueFd> create_store_lock();

// kTimeout at the deadline, naming the process that holds it.
[[nodiscard]] Status take_store_lock(int fd, Deadline deadline);

}  // namespace entrepot::os
