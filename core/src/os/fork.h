// Helpers for fork and threads: fork handlers, blocked signals for helper threads, replacing a mapping in place.
#pragma once

#include <csignal>

#include "base/status.h"
#include "os/mapping.h"

namespace entrepot::os {

// Registers `prepare` to run before each fork of this process, and the others after it. Cannot be undone.
[[nodiscard]] Status at_fork(void (*prepare)(), void (*in_parent)(), void (*in_child)());

// Moves the mapping to `address`, replacing whatever is mapped there, for the rest of the process. False if the kernel
// refuses; `mapping` is then unchanged.
[[nodiscard]] bool move_mapping(Mapping& mapping, std::byte* address);

// Blocks all signals in this thread while it exists; a thread created meanwhile keeps them blocked for good.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t previous_mask_;
};

}  // namespace entrepot::os
