// Shell patterns over names and IDs: `*` any text, `?` one character, `[abc]`, `[a-z]`, `[!x]`; everything else itself.
#pragma once

#include <string_view>

namespace entrepot {

// Time bounded by pattern times text.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace entrepot
