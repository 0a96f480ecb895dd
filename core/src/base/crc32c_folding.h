// CRC-32C of large data at memory speed, by carry-less multiplication in 256-bit registers (AVX2 and VPCLMULQDQ).
// x86_64 only.
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
#pragma once

#include <cstddef>
#include <cstdint>

namespace entrepot {

inline constexpr std::uint32_t kCrc32cPolynomial = 0x82f6'3b78U;  // reflected
inline constexpr std::size_t kCrcFoldingBytes = 256;              // processed per step

// Returns the CRC register after `bytes` bytes, a nonzero multiple of kCrcFoldingBytes. Requires
// cpu_has_wide_products() and cpu_has_crc32c().
[[nodiscard]] std::uint32_t crc32c_fold(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes);

}  // namespace entrepot
