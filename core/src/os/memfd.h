// Shared memory: memfds of fixed size, reservation of pages, holes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::os {

// Creates a memfd of `bytes` bytes, mode 0600, close-on-exec, sealed against shrinking, growing and further seals (so
// no mapping can hit SIGBUS by truncation). It has no pages yet.
[[nodiscard]] Result<UniqueFd> create_memfd(const std::string& name, std::uint64_t bytes);

// kInvalidArgument unless `fd` is a memfd with those seals; otherwise its owner could truncate it under our mapping.
[[nodiscard]] Status check_sealed(int fd);

// Opens a second, read-only file description of the same memory: it cannot be mapped writable.
[[nodiscard]] Result<UniqueFd> reopen_read_only(int fd);
[[nodiscard]] Result<UniqueFd> duplicate(int fd);  // close-on-exec

[[nodiscard]] Result<std::uint64_t> file_bytes(int fd);      // logical size
[[nodiscard]] Result<std::uint64_t> resident_bytes(int fd);  // pages that exist (st_blocks)
// Ranges of the first `bytes` without pages: offset and length, in order. Moves the descriptor's file position.
[[nodiscard]] Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> holes(int fd, std::uint64_t bytes);
[[nodiscard]] Result<bool> same_file(int a, int b);  // same device and inode; authenticates a pin table
[[nodiscard]] bool is_writable(int fd);              // opened read-write

// Reserves pages for [offset, offset + bytes), which must be inside the file. kStoreFull if there are none; never
// SIGBUS later.
[[nodiscard]] Status reserve(int fd, std::uint64_t offset, std::uint64_t bytes);

// Returns the range's pages to the system; it reads as zeros afterwards. Mappings of it stay valid.
[[nodiscard]] Status punch(int fd, std::uint64_t offset, std::uint64_t bytes);

[[nodiscard]] std::uint64_t page_bytes();

}  // namespace entrepot::os
