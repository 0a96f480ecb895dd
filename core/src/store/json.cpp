#include "store/json.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace entrepot {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  std::size_t length = 0;
  std::uint32_t least = 0;
  std::uint32_t code = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) {
    length = 2, least = 0x80, code = lead & 0x1fU;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3, least = 0x800, code = lead & 0x0fU;
  } else if (lead >= 0xf0 && lead < 0xf5) {
    length = 4, least = 0x10000, code = lead & 0x07U;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < least || code > 0x10ffff || surrogate ? 0 : length;
}

}  // namespace

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
