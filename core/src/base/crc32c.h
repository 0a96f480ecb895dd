// CRC-32C (Castagnoli), by CPU instructions where available (detected at run time), otherwise by tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace entrepot {

// Returns the CRC of `bytes` bytes at `data`. To continue over several pieces, pass the CRC so far as `seed`.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

// Implementations available on this CPU, fastest first: carry-less multiplication ("vpclmulqdq"), a CRC instruction
// ("sse4.2", "armv8"), a table ("table", always available). All give the same result; crc32c() uses the first.
struct Crc32cImplementation {
  std::string_view name;
  std::uint32_t (*sum)(const void* data, std::size_t bytes, std::uint32_t seed);
};
[[nodiscard]] std::span<const Crc32cImplementation> crc32c_implementations();

// Computes the CRC of several fields, each as its bytes in memory; only for types without padding.
class Crc32c {
 public:
  template <class T>
    requires std::has_unique_object_representations_v<T>
  Crc32c& add(const T& value) {
    value_ = crc32c(&value, sizeof(T), value_);
    return *this;
  }
  Crc32c& add_bytes(const void* data, std::size_t bytes) {
    value_ = crc32c(data, bytes, value_);
    return *this;
  }
  [[nodiscard]] std::uint32_t value() const { return value_; }

 private:
  std::uint32_t value_ = 0;
};

}  // namespace entrepot
