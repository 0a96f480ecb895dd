// Copies into shared memory that others will read: large ones past the caches, so that the copy neither reads the
// destination's old lines nor throws out the caller's own data.
#pragma once

#include <cstddef>
#include <string_view>

namespace entrepot {

inline constexpr std::size_t kStreamingMinBytes = 256U << 10;

void copy_payload(void* to, const void* from, std::size_t bytes);

// "avx2", "sse2" or "memcpy": what large copies use on this CPU.
[[nodiscard]] std::string_view copy_kind();

}  // namespace entrepot
