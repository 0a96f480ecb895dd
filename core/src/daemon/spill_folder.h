// The folders of spilling, looked at before they are used: who owns them, who else uses them, what the disk can do.
//
// Each store has a subfolder of its own in every folder, named by a hash of its address, so that the next daemon at
// that address finds what an earlier one left:   lock   manifest   spill-00001 ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/direct_io.h"

namespace entrepot {

struct SpillFolder {
  std::string path;          // the store's subfolder
  std::string folder;        // that one is in
  std::string socket_path;   // of the store
  std::uint64_t device = 0;  // its file system
  UniqueFd lock;             // nobody else uses the subfolder while it is open
  bool direct = false;
};

// In the order of their numbers.
struct FoundFile {
  std::uint16_t number = 0;
  std::string path;
};

// /var/tmp/entrepot-UID: on disk and kept over a reboot, where /tmp is often memory and a home folder often a
// network's.
[[nodiscard]] std::string default_spill_folder();

// The path of a store's subfolder.
[[nodiscard]] std::string store_subfolder(const std::string& folder, const std::string& socket_path);
[[nodiscard]] std::string spill_file_path(const SpillFolder& folder, std::uint16_t number);

// Makes folder and subfolder where they are missing (0700; the parent must be there) and locks the subfolder. Says
// which folder and what to do: kInvalidArgument (no parent, not a folder), kAccessDenied (not ours, others may write
// it, a link, read-only), kStoreFull (less than `reserve_bytes` free), kStoreUnavailable (another daemon uses it; tried
// for `patience_ms`, because a dying daemon keeps its lock until its last I/O is over).
[[nodiscard]] Result<SpillFolder> open_spill_folder(os::FileIo& io, const std::string& folder,
                                                    const std::string& socket_path, std::uint64_t reserve_bytes,
                                                    std::uint64_t patience_ms);

// Is the subfolder that we hold still at its path? A cleaner of old files, or somebody by hand, may have removed it.
[[nodiscard]] bool is_still_there(const SpillFolder& opened);
// Makes and locks anew one that is not, looked at as at first; kInvalidArgument too if its path is on another file
// system by now (its disk is not mounted, say). Once, without waiting.
[[nodiscard]] Result<SpillFolder> open_spill_folder_again(os::FileIo& io, const SpillFolder& former,
                                                          std::uint64_t reserve_bytes);

[[nodiscard]] Result<std::vector<FoundFile>> find_spill_files(const SpillFolder& folder);

// Removes the files of this project from a subfolder that we hold, and the subfolder.
[[nodiscard]] Status remove_store_subfolder(os::FileIo& io, const std::string& subfolder);

// Subfolders of stores that nobody runs and nobody touched for a day, in `folder`. A bounded number at a time; how many
// were removed.
std::uint32_t remove_stale_subfolders(os::FileIo& io, const std::string& folder, std::uint64_t now_unix_ns);

}  // namespace entrepot
