// CRC-32C of large data by carry-less products of 256-bit registers (AVX2 and VPCLMULQDQ), at the speed of memory. On
// x86_64 alone.
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
#pragma once

#include <cstddef>
#include <cstdint>

namespace entrepot {

inline constexpr std::uint32_t kCrc32cPolynomial = 0x82f6'3b78U;  // reflected
inline constexpr std::size_t kCrcFoldingBytes = 256;              // what one step takes

// The register after `bytes` bytes: a multiple of kCrcFoldingBytes, not 0. Only where cpu_has_wide_products() and
// cpu_has_crc32c().
[[nodiscard]] std::uint32_t crc32c_fold(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes);

}  // namespace entrepot
