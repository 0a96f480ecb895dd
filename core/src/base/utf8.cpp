#include "base/utf8.h"

#include <cstdint>

namespace entrepot {

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

std::size_t utf8_valid_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return at;
}

std::string to_utf8(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::size_t consumed = length == 0 ? 1 : length;
    if (out.size() + consumed > max_bytes) break;
    out += length == 0 ? std::string_view("?") : text.substr(0, length);
    text.remove_prefix(consumed);
  }
  return out;
}

}  // namespace entrepot
