// Interface of a fuzz target. Each target is one file that defines
//
//   LLVMFuzzerTestOneInput(data, size)   runs one input; aborts (or a sanitizer does) if something is wrong
//   entrepot::fuzz::seeds()              initial inputs, produced by the project's own encoders
//
// It is driven by libFuzzer (`make fuzz`) or, with any compiler, by replay_main.cpp: with seeds, mutations of them, and
// earlier findings (corpus/<target>/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace entrepot::fuzz {

using Bytes = std::vector<std::uint8_t>;

[[nodiscard]] std::vector<Bytes> seeds();

// Checks an invariant that must hold for every input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %s\n", what);
  std::abort();
}

// Consumes an input piecewise; reads beyond its end return zeros.
class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }

  template <class T>
  [[nodiscard]] T number() {
    T value{};
    const std::size_t bytes = std::min(sizeof(T), rest_.size());
    if (bytes > 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  [[nodiscard]] std::uint8_t byte() { return number<std::uint8_t>(); }
  [[nodiscard]] std::span<const std::uint8_t> take(std::size_t bytes) {
    const auto taken = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  [[nodiscard]] std::span<const std::uint8_t> all() { return take(rest_.size()); }

 private:
  std::span<const std::uint8_t> rest_;
};

inline Bytes bytes_of(const void* data, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(data);
  return {first, first + size};
}
inline void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }
inline std::span<const std::byte> as_std_bytes(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
