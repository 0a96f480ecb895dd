// CRC-32C (Castagnoli): by the instructions of SSE4.2 or ARMv8 where the CPU has them, which is asked at run time, and
// by tables elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace entrepot {

// The CRC of `bytes` bytes at `data`. To go on with a further piece pass the CRC so far as `seed`.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

// The table version alone (tests compare the two).
[[nodiscard]] std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t seed = 0);

// "sse4.2", "armv8" or "table".
[[nodiscard]] std::string_view crc32c_kind();

// Collects fields one by one, each as its bytes in memory; only for types without padding.
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
