// CRC-32C (Castagnoli): by the instructions that the CPU has for it, which is asked at run time, and by tables
// elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace entrepot {

// The CRC of `bytes` bytes at `data`. To go on with a further piece pass the CRC so far as `seed`.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

// The ways to sum that this CPU has, the fastest first: by carry-less products ("vpclmulqdq"), by an instruction for it
// ("sse4.2", "armv8"), by a table ("table", always there). All give the same; crc32c() is the first.
struct Crc32cWay {
  std::string_view name;
  std::uint32_t (*sum)(const void* data, std::size_t bytes, std::uint32_t seed);
};
[[nodiscard]] std::span<const Crc32cWay> crc32c_ways();

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
