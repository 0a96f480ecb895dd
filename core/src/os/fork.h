// What surrounds a fork and a thread: handlers, signals kept away from helper threads, a mapping put in another's
// place.
#pragma once

#include <csignal>

#include "base/status.h"
#include "os/mapping.h"

namespace entrepot::os {

// Calls `prepare` before each fork of this process, and the others after it. For good.
[[nodiscard]] Status at_fork(void (*prepare)(), void (*in_parent)(), void (*in_child)());

// Moves the mapping to `address`, in place of whatever is mapped there. False, and `mapping` stays whole, if the kernel
// refuses; else the mapping is there for the rest of the process.
[[nodiscard]] bool move_mapping(Mapping& mapping, std::byte* address);

// While it lives all signals are blocked in this thread; a thread made meanwhile keeps them blocked for good.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace entrepot::os
