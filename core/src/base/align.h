// Rounding to multiples of a power of two.
#pragma once

#include <cstdint>

namespace entrepot {

// The next multiple of `align`, a power of two: by a mask, as page sizes are known at run time only and a division is
// not for the paths where this stands.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t align) {
  return (value + align - 1) & ~(align - 1);
}

}  // namespace entrepot
