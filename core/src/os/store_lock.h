// The lock of a store: whoever has it is the one process that may change the store's memory.
//
// A record lock (fcntl, F_SETLK) on a memfd of its own, which goes with the store from daemon to daemon. Such a lock
// belongs to a process, not to a descriptor: no child has it, not even one that is stopped between fork and exec and
// has copies of all descriptors, and the kernel gives it up only when every thread of its process has ended.
//
// One rule comes with that: a process that closes any descriptor of the file loses the lock. So the holder has one
// descriptor of it, makes no others, and keeps it open for as long as it lives.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/clock.h"

namespace entrepot::os {

[[nodiscard]] Result<UniqueFd> create_store_lock();

// kTimeout at the deadline, with the process that has it.
[[nodiscard]] Status take_store_lock(int fd, Deadline deadline);

}  // namespace entrepot::os
