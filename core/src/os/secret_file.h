// A file that nobody but its owner may see.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace entrepot::os {

// What is in it, at most `limit` bytes. kAccessDenied unless it is a plain file of ours or root's that neither group
// nor others may read or write; the message says what to do.
[[nodiscard]] Result<std::string> read_secret_file(const std::string& path, std::uint64_t limit);

}  // namespace entrepot::os
