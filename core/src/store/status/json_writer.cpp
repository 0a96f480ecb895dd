#include "store/status/json_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "base/utf8.h"

namespace entrepot {

namespace {

bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

// Appends the first character of `text`, which is not plain, and returns how many bytes it took.
std::size_t append_special(std::string& out, std::string_view text) {
  const auto c = static_cast<unsigned char>(text.front());
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
    return length;
  }
  return 1;
}

// Lists of many objects are mostly plain text, which is appended as a whole.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (!text.empty()) text.remove_prefix(append_special(out, text));
  }
  out += '"';
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

void JsonWriter::comma() {
  if (!first_) text_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  comma();
  append_quoted(text_, name);
  text_ += ':';
  first_ = true;  // the value that follows needs no comma
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  comma();
  append_quoted(text_, text);
  return *this;
}

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
