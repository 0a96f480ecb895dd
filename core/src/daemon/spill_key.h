// Where the key of what is spilled comes from: a file, or what a command prints. It is never logged nor passed on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "daemon/spill_cipher.h"

namespace entrepot {

// 32 bytes as they are, or 64 hexadecimal digits and perhaps white space behind them. kInvalidArgument says how long
// the text is, and nothing else of it.
[[nodiscard]] Result<SpillKey> parse_key(std::string_view text);

// kAccessDenied unless the file is plain, ours or root's, and nobody but its owner may read or write it.
[[nodiscard]] Result<SpillKey> key_from_file(const std::string& path);

// Runs it by /bin/sh. kTimeout: it was not done in time, and it and what it started are killed.
[[nodiscard]] Result<SpillKey> key_from_command(const std::string& command, std::uint64_t most_ms);

}  // namespace entrepot
