// Little-endian, bounds-checked encoding of messages: numbers, strings, arrays, and structs that list their fields.
//
// A struct takes part by defining `template <class V> void fields(V& v) { v(a, b, c); }`; the same list serves reading
// and writing. The reader never trusts a length: a count that the remaining bytes cannot hold fails before any
// allocation.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace entrepot {

template <class T>
concept WireNumber = (std::integral<T> && !std::same_as<T, bool>) || std::is_enum_v<T>;  // a bool allows only 0 and 1

class WireWriter {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  // Fields at the end of a message that a later minor version appended.
  template <class... Ts>
  void appended(const Ts&... values) {
    (put(values), ...);
  }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  template <WireNumber T>
  void put(const T& value) {
    raw(&value, sizeof(T));
  }
  void put(const std::string& value) {
    put(static_cast<std::uint32_t>(value.size()));
    raw(value.data(), value.size());
  }
  template <std::size_t N>
  void put(const std::array<std::uint8_t, N>& value) {
    raw(value.data(), N);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values)
      put(value);
  }
  template <class T>
    requires requires(T& t, WireWriter& w) { t.fields(w); }
  void put(const T& value) {
    const_cast<T&>(value).fields(*this);  // fields() lists members for both directions; the writer only reads them
  }
  void raw(const void* data, std::size_t size) {
    const auto* first = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }

  std::vector<std::uint8_t> bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  template <class... Ts>
  void operator()(Ts&... values) {
    (get(values), ...);
  }
  // Fields that are missing if the sender is older; they keep their values then.
  template <class... Ts>
  void appended(Ts&... values) {
    if (ok_ && !rest_.empty()) (get(values), ...);
  }
  // True if all fields were present. Trailing bytes are allowed: a newer minor version may append fields.
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }

 private:
  template <WireNumber T>
  void get(T& value) {
    raw(&value, sizeof(T));
  }
  void get(std::string& value) {
    std::uint32_t size = 0;
    get(size);
    if (!ok_ || size > rest_.size()) return fail();
    value.assign(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
  }
  template <std::size_t N>
  void get(std::array<std::uint8_t, N>& value) {
    raw(value.data(), N);
  }
  template <class T>
  void get(std::vector<T>& values) {
    std::uint32_t count = 0;
    get(count);
    if (!ok_ || count > rest_.size()) return fail();  // every element takes at least one byte
    values.clear();
    values.reserve(std::min<std::size_t>(count, rest_.size() / sizeof(T) + 1));  // the claimed count is not trusted
    for (std::uint32_t i = 0; i < count && ok_; ++i)
      get(values.emplace_back());
  }
  template <class T>
    requires requires(T& t, WireReader& r) { t.fields(r); }
  void get(T& value) {
    value.fields(*this);
  }
  void raw(void* out, std::size_t size) {
    if (!ok_ || size > rest_.size()) return fail();
    std::memcpy(out, rest_.data(), size);
    rest_ = rest_.subspan(size);
  }
  void fail() {
    ok_ = false;
    rest_ = {};
  }

  std::span<const std::uint8_t> rest_;
  bool ok_ = true;
};

template <class T>
[[nodiscard]] std::vector<std::uint8_t> to_wire(const T& value) {
  WireWriter writer;
  writer(value);
  return writer.take();
}

template <class T>
[[nodiscard]] bool from_wire(std::span<const std::uint8_t> bytes, T& value) {
  WireReader reader(bytes);
  reader(value);
  return reader.ok();
}

}  // namespace entrepot
