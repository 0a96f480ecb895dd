// Copies into shared memory that others will read: large ones past the caches, so that the copy neither reads the
// destination's old lines nor throws out the caller's own data.
#pragma once

#include <cstddef>
#include <string_view>

namespace entrepot {

// Smaller ones may well be read again while they are in the caches.
inline constexpr std::size_t kStreamingMinBytes = 4U << 20;

void copy_payload(void* to, const void* from, std::size_t bytes);

// "avx2", "sse2" or "memcpy": what large copies use on this CPU.
[[nodiscard]] std::string_view copy_kind();

}  // namespace entrepot
