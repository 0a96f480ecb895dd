// Reading files that only their owner may access.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace entrepot::os {

// Returns the contents, at most `limit` bytes. kAccessDenied unless it is a regular file, owned by us or root, that
// neither group nor others may read or write; the message names the remedy.
[[nodiscard]] Result<std::string> read_secret_file(const std::string& path, std::uint64_t limit);

}  // namespace entrepot::os
