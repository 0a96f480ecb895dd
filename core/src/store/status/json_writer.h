// JSON writer for status, info and lists, which people and tools read.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrepot {

// Invalid UTF-8 is replaced by U+FFFD, so the result is always valid JSON.
[[nodiscard]] std::string json_quote(std::string_view text);

// Usage: json.open_object(); json.key("a").value(1); json.close_object();
class JsonWriter {
 public:
  JsonWriter& open_object() { return open('{'); }
  JsonWriter& close_object() { return close('}'); }
  JsonWriter& open_array() { return open('['); }
  JsonWriter& close_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag) { return raw(flag ? "true" : "false"); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& value(T number) {
    std::array<char, 24> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
    return raw(std::string_view(text.data(), end));  // every 64-bit number fits
  }
  JsonWriter& value(double number);  // nine digits; null if not finite
  JsonWriter& value_seconds(std::uint64_t nanoseconds);
  JsonWriter& null() { return raw("null"); }

  template <class T>
  JsonWriter& field(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view text);
  void comma();

  std::string text_;
  bool first_ = true;  // nothing written yet at this level
};

}  // namespace entrepot
