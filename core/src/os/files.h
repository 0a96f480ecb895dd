// File system helpers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::os {

// Creates `path` (and its parents) as a directory of ours, mode 0700 if new. kAccessDenied if it belongs to another
// user or is writable by others (a sticky directory such as /tmp is acceptable as a parent, not as the directory
// itself); the message names the owner and the remedy.
[[nodiscard]] Status ensure_private_folder(const std::string& path);

// The same, but the parent must exist (else kInvalidArgument): for a directory that the user named, where a missing
// parent is more likely an unmounted disk.
[[nodiscard]] Status ensure_private_subfolder(const std::string& path);

// Checks that we or root own the directory and nobody else can replace our files in it; required by listen_unix.
[[nodiscard]] Status check_folder_safe(const std::string& path);

[[nodiscard]] Status remove_file(const std::string& path);  // success if it does not exist
[[nodiscard]] bool file_exists(const std::string& path);

[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);  // names, without . and ..
[[nodiscard]] Status remove_folder(const std::string& path);  // must be empty; success if it does not exist
[[nodiscard]] Result<std::uint64_t> modified_unix_ns(const std::string& path);  // does not follow links
[[nodiscard]] Result<std::uint64_t> bytes_on_disk(const std::string& path);     // likewise; without holes
[[nodiscard]] bool is_plain_file(const std::string& path);                      // neither a link nor a directory

// Reads at most `limit` bytes of a small file (/proc, configuration). kStoreUnavailable if it does not exist.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::uint64_t limit = 1U << 20);

// Locks the file (created with mode 0600 if missing) for this process until the descriptor is closed. Fails at once
// with kStoreUnavailable if another process holds the lock.
[[nodiscard]] Result<UniqueFd> lock_file(const std::string& path);

// What is there, a socket's file or a link included, only to be identified.
[[nodiscard]] Result<UniqueFd> open_path(const std::string& path);
[[nodiscard]] bool is_file_at(int fd, const std::string& path);  // whether the path still names the open file

[[nodiscard]] Status replace_text(int fd, std::string_view text);  // replaces the whole contents

// Redirects standard output and standard error to the end of this file.
[[nodiscard]] Status redirect_output(const std::string& path);

// Writes all of `text` to a pipe or file.
[[nodiscard]] Status write_text(int fd, std::string_view text);

[[nodiscard]] std::string folder_of(const std::string& path);

}  // namespace entrepot::os
