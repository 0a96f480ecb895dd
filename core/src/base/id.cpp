#include "base/id.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/text.h"

namespace entrepot {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::uint64_t hash_id(const IdBytes& id) {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint32_t c = 0;
  std::memcpy(&a, id.data(), 8);
  std::memcpy(&b, id.data() + 8, 8);
  std::memcpy(&c, id.data() + 16, 4);
  return mix64(a ^ mix64(b ^ (c * 0x9e37'79b9'7f4a'7c15ULL)));
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 0xf]);
  }
  return text;
}

Result<IdBytes> id_from_hex(std::string_view text) {
  if (text.size() != 2 * kIdBytes) {
    return Status(Code::kInvalidArgument, concat("an object ID is ", 2 * kIdBytes, " hex digits, but this text has ",
                                                 text.size(), " characters"));
  }
  IdBytes id{};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) {
      return Status(Code::kInvalidArgument, concat("an object ID is ", 2 * kIdBytes, " hex digits, but character ", i,
                                                   " of \"", text, "\" is not one"));
    }
    id[i / 2] = static_cast<std::uint8_t>((id[i / 2] << 4) | digit);
  }
  return id;
}

Result<IdBytes> id_from_bytes(std::span<const std::uint8_t> bytes) {
  if (bytes.size() != kIdBytes) {
    return Status(Code::kInvalidArgument, concat("an object ID is ", kIdBytes, " bytes, but got ", bytes.size()));
  }
  IdBytes id{};
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

Result<ObjectId> ObjectId::from_hex(std::string_view text) {
  ASSIGN_OR_RETURN(const IdBytes bytes, id_from_hex(text));
  return ObjectId{bytes};
}

}  // namespace entrepot
