// Fast hash for hash tables. Not for integrity checks (use crc32c.h), and not resistant to adversaries.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace entrepot {

// Mixes the bits of one number.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8'feb8'6659'fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8'feb8'6659'fd93ULL;
  x ^= x >> 32;
  return x;
}

[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::uint8_t> bytes, std::uint64_t seed = 0);
[[nodiscard]] std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0);

}  // namespace entrepot
