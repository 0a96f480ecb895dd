#include "base/hash.h"

#include <cstring>

namespace entrepot {

std::uint64_t hash_bytes(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  std::uint64_t hash = mix64(seed ^ (bytes.size() * 0x9e37'79b9'7f4a'7c15ULL));
  while (bytes.size() >= 8) {
    std::uint64_t part = 0;
    std::memcpy(&part, bytes.data(), 8);
    hash = mix64(hash ^ part) + 0x9e37'79b9'7f4a'7c15ULL;
    bytes = bytes.subspan(8);
  }
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return mix64(hash ^ rest);
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return hash_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, seed);
}

}  // namespace entrepot
