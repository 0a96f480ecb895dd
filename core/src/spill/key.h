// Encryption key for spilled data, from a file or a command's output. Never logged or passed on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "spill/cipher.h"

namespace entrepot {

// 32 raw bytes, or 64 hexadecimal digits with optional trailing white space. kInvalidArgument gives the length of the
// text, and nothing else of it.
[[nodiscard]] Result<SpillKey> parse_key(std::string_view text);

// kAccessDenied unless it is a regular file owned by us or root, readable and writable by nobody but its owner.
[[nodiscard]] Result<SpillKey> key_from_file(const std::string& path);

// Runs the command with /bin/sh. kTimeout: it did not finish in time; it and its children are killed.
[[nodiscard]] Result<SpillKey> key_from_command(const std::string& command, std::uint64_t timeout_ms);

}  // namespace entrepot
