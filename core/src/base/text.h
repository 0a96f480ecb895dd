// Message formatting: concat("segment ", 7, " holds ", format_bytes(n)).
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace entrepot {

namespace internal {
template <class T>
void append_text(std::ostringstream& out, const T& value) {
  if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int8_t>) {
    out << static_cast<int>(value);  // as a number, not a character
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<std::int64_t>(value);
  } else {
    out << value;
  }
}
}  // namespace internal

template <class... Ts>
[[nodiscard]] std::string concat(const Ts&... parts) {
  std::ostringstream out;
  (internal::append_text(out, parts), ...);
  return std::move(out).str();
}

// Examples: "512 B", "64 KiB", "1.5 GiB".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

// Examples: "1 object", "2 objects".
[[nodiscard]] std::string count_of(std::uint64_t count, std::string_view noun);

// Formats with three significant digits: "0.412 s", "1.2e+04 s".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace entrepot
