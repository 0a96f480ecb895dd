// UTF-8: how names, scopes and whatever else people read are written.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace entrepot {

// Bytes of the well-formed character at the start of `text`, which is not empty; 0 if there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

// Where `text` is no longer UTF-8; its size if all of it is.
[[nodiscard]] std::size_t utf8_end(std::string_view text);

// At most `most` bytes of `text`, cut between characters, with '?' for each byte that is of none.
[[nodiscard]] std::string to_utf8(std::string_view text, std::size_t most);

}  // namespace entrepot
