// What is said when the daemon did not answer in time: which process that was, whether it is stopped, what to do.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace entrepot {

// `peer`: who listens, as the kernel says (SO_PEERCRED); `daemon`: who answered before. 0: not known.
[[nodiscard]] Status silence(std::uint32_t peer, std::uint32_t daemon, std::uint64_t waited_ms);

}  // namespace entrepot
