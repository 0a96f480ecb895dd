// Sending many ranges of memory through a blocking socket, one after another.
#pragma once

#include <cstddef>
#include <span>

namespace entrepot::os {

using ByteRange = std::span<const std::byte>;

// Returns 0 once everything was handed to the kernel, or an errno, EAGAIN if the socket's own time limit (SO_SNDTIMEO)
// has passed without progress. Signals do not end it.
[[nodiscard]] int send_all(int fd, std::span<const ByteRange> ranges);

}  // namespace entrepot::os
