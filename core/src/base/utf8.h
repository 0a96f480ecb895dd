// UTF-8 helpers for names, scopes and other text shown to people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace entrepot {

// Length in bytes of the well-formed character at the start of `text`, which must not be empty; 0 if it is malformed.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

// Offset of the first byte that is not valid UTF-8; text.size() if all of it is valid.
[[nodiscard]] std::size_t utf8_valid_length(std::string_view text);

// Returns at most `max_bytes` bytes of `text`, cut between characters, with '?' for each invalid byte.
[[nodiscard]] std::string to_utf8(std::string_view text, std::size_t max_bytes);

}  // namespace entrepot
