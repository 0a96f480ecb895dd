// Error for a daemon that did not answer in time: which process it was, whether it is stopped, what to do.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace entrepot {

// `peer`: the process that listens, from the kernel (SO_PEERCRED); `daemon`: the process that answered before. 0:
// unknown.
[[nodiscard]] Status daemon_timeout_error(std::uint32_t peer, std::uint32_t daemon, std::uint64_t waited_ms);

}  // namespace entrepot
