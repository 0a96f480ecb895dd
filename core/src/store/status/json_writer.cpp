#include "store/status/json_writer.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "base/utf8.h"

namespace entrepot {

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    std::size_t taken = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escape.data();
    } else if (const std::size_t length = utf8_length(text); length == 0) {
      out += "\\ufffd";
    } else {
      out += text.substr(0, length);
      taken = length;
    }
    text.remove_prefix(taken);
  }
  out += '"';
  return out;
}

void JsonWriter::comma() {
  if (!first_) text_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  comma();
  text_ += json_quote(name);
  text_ += ':';
  first_ = true;  // the value that follows needs no comma
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) { return raw(json_quote(text)); }

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.9g", number);
  return raw(std::string_view(text.data(), static_cast<std::size_t>(length)));
}

JsonWriter& JsonWriter::value_seconds(std::uint64_t nanoseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%llu.%03llu", static_cast<unsigned long long>(nanoseconds / 1'000'000'000),
                static_cast<unsigned long long>(nanoseconds / 1'000'000 % 1000));
  return raw(text.data());
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  comma();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  comma();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

}  // namespace entrepot
