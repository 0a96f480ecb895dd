// Spill directories, validated before use: who owns them, who else uses them, what the disk supports.
//
// Each store has a subdirectory of its own in every one, named by a hash of its address, so that the next daemon at
// that address finds what an earlier one left:   lock   manifest   spill-00001 ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/direct_io.h"
#include "os/unique_fd.h"

namespace entrepot {

struct SpillFolder {
  std::string path;          // the store's subdirectory
  std::string folder;        // its parent
  std::string socket_path;   // of the store
  std::uint64_t device = 0;  // file system
  UniqueFd lock;             // held open: nobody else uses the subdirectory
  bool direct = false;
};

// Sorted by number.
struct SpillFileEntry {
  std::uint16_t number = 0;
  std::string path;
};

// /var/tmp/entrepot-UID: on disk and kept over a reboot, whereas /tmp is often in memory and a home directory often on
// a network.
[[nodiscard]] std::string default_spill_folder();

// Path of a store's subdirectory.
[[nodiscard]] std::string store_subfolder(const std::string& folder, const std::string& socket_path);
[[nodiscard]] std::string spill_file_path(const SpillFolder& folder, std::uint16_t number);

// Creates directory and subdirectory if they are missing (0700; the parent must exist) and locks the subdirectory.
// Errors name the directory and the remedy: kInvalidArgument (no parent, not a directory), kAccessDenied (not ours,
// writable by others, a link, read-only), kStoreFull (less than `reserve_bytes` free), kStoreUnavailable (used by
// another daemon; retried for `lock_wait_ms`, because a dying daemon keeps its lock until its last I/O is done).
// A full disk is no error if there are spill files, which can be read all the same, or without `reserve_bytes`.
[[nodiscard]] Result<SpillFolder> open_spill_folder(os::FileIo& io, const std::string& folder,
                                                    const std::string& socket_path,
                                                    std::optional<std::uint64_t> reserve_bytes,
                                                    std::uint64_t lock_wait_ms);

// Whether the subdirectory we hold is still at its path; a cleaner of old files, or a user, may have removed it.
[[nodiscard]] bool still_exists(const SpillFolder& opened);
// Creates and locks a removed one again, with the same validation; also kInvalidArgument if its path is now on another
// file system (e.g. its disk is not mounted). Tries once, without waiting.
[[nodiscard]] Result<SpillFolder> reopen_spill_folder(os::FileIo& io, const SpillFolder& previous,
                                                      std::uint64_t reserve_bytes);

[[nodiscard]] Result<std::vector<SpillFileEntry>> list_spill_files(const SpillFolder& folder);

// Removes our files from a subdirectory that we hold, and the subdirectory itself.
[[nodiscard]] Status remove_store_subfolder(os::FileIo& io, const std::string& subfolder);

// Removes the subdirectory that a start which failed has left: nothing in it but its lock, which nobody holds.
void remove_unused_subfolder(os::FileIo& io, const std::string& folder, const std::string& socket_path);

// Removes subdirectories in `folder` of stores that are not running and were not touched for a day; a bounded number
// per call. Returns how many were removed.
std::uint32_t remove_stale_subfolders(os::FileIo& io, const std::string& folder, std::uint64_t now_unix_ns);

}  // namespace entrepot
