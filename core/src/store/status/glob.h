// Shell patterns over names and IDs: `*`, `?`, `[abc]`, `[a-z]`, `[!x]`; any other character matches itself.
#pragma once

#include <string_view>

namespace entrepot {

// Time is O(pattern length * text length).
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace entrepot
