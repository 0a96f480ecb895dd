// Rounding to multiples of a power of two.
#pragma once

#include <cstdint>

namespace entrepot {

// Rounds up to a multiple of `align`, a power of two. Uses a mask: page sizes are known only at run time, and a
// division is too slow for the hot paths that call this.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t align) {
  return (value + align - 1) & ~(align - 1);
}

}  // namespace entrepot
