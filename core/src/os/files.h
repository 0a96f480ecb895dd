// The few things the core does with the file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace entrepot::os {

// Makes `path` (and its parents) a folder of ours, mode 0700 if it is new. kAccessDenied if it belongs to another user
// or others may write it (a sticky folder such as /tmp is good enough as a parent, not as the folder itself); the
// message names the owner and what to do.
[[nodiscard]] Status ensure_private_folder(const std::string& path);

// The same, but its parent must be there already (kInvalidArgument otherwise): a folder that the user named, where a
// parent that is missing is rather a disk that is not mounted.
[[nodiscard]] Status ensure_private_subfolder(const std::string& path);

// The owner must be us or root, and nobody else may replace our files in it: what listen_unix needs of its folder.
[[nodiscard]] Status check_folder_safe(const std::string& path);

[[nodiscard]] Status remove_file(const std::string& path);  // one that is not there is success
[[nodiscard]] bool file_exists(const std::string& path);

[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);  // names, without . and ..
[[nodiscard]] Status remove_folder(const std::string& path);  // an empty one; one that is not there is success
[[nodiscard]] Result<std::uint64_t> modified_unix_ns(const std::string& path);  // links are not followed
[[nodiscard]] bool is_plain_file(const std::string& path);                      // neither a link nor a folder

// At most `limit` bytes of a small file (/proc, configuration). kStoreUnavailable if there is none.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::uint64_t limit = 1U << 20);

// Locks the file (made with mode 0600 if it is not there) for this process until the descriptor is closed. Somebody
// else having it is kStoreUnavailable, at once.
[[nodiscard]] Result<UniqueFd> lock_file(const std::string& path);

[[nodiscard]] bool is_file_at(int fd, const std::string& path);  // whether that path still names what is open

[[nodiscard]] Status replace_text(int fd, std::string_view text);  // all that a file has

// Standard output and standard error go to the end of this file from now on.
[[nodiscard]] Status redirect_output(const std::string& path);

// All of `text` to a pipe or file.
[[nodiscard]] Status write_text(int fd, std::string_view text);

[[nodiscard]] std::string folder_of(const std::string& path);

}  // namespace entrepot::os
