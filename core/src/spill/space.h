// SpillSpace: allocation of space in spill files. Files are created ahead of need (with their disk space allocated),
// reused, and removed after a minute of holding nothing: returning space costs the disk more than writing it.
//
//   file:  created ──▶ open (extents come and go) ──empty for long, or its room is needed──▶ removed
//                        └──an I/O error while writing──▶ abandoned (no new extents; its copies stay readable)
//                                                           └──empty──▶ removed
//
// When the quota has no room for another file although copies take less, free ranges are punched: they then count as
// unused, and count again when a copy is placed over them. Directories are used round-robin. A directory whose disk is
// full or fails is skipped for half a minute. One that was removed is recreated before the next copy is written: what
// it held stays readable through open descriptors, and is lost when the daemon ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/direct_io.h"
#include "shm/extent_allocator.h"
#include "spill/extent_format.h"
#include "spill/folder.h"
#include "spill/punched_ranges.h"

namespace entrepot {

struct SpillFile {
  std::uint16_t number = 0;
  std::size_t folder = 0;
  std::string path;
  UniqueFd fd;
  bool direct = false;
  std::uint64_t bytes = 0;
  // Guarded by the space's mutex:
  ExtentAllocator extents;
  PunchedRanges holes;  // within free ranges
  std::uint64_t empty_since_ns = 0;
  bool abandoned = false;
};

struct SpillExtent {
  std::shared_ptr<SpillFile> file;  // keeps the descriptor open during I/O
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct SpillLimits {
  std::uint64_t quota_bytes = 0;                        // of all files together, not counting holes
  std::uint64_t reserve_bytes = 0;                      // of each disk, left free
  std::uint64_t empty_file_ttl_ns = 60'000'000'000ULL;  // how long an empty file is kept
  std::uint64_t backoff_ns = 30'000'000'000ULL;         // how long a directory that failed is skipped
};

// Any thread; allocate() and sweep() do I/O and are for workers only.
class SpillSpace {
 public:
  SpillSpace(os::FileIo& io, std::vector<SpillFolder> folders, SpillLimits limits);

  // Call before the first allocation: opens the files found in the directories; all their space is free until adopted.
  // An unusable file is logged and ignored.
  [[nodiscard]] Status open_existing();
  // Claims the extent of an existing copy. kObjectLost if it is outside its file; kCorruptData if two copies claim it.
  [[nodiscard]] Status adopt(const SpillPosition& place, std::uint64_t bytes);
  void adopt_end();

  // kStoreFull: quota, reserve or disk, with figures. kInternal and others: no directory can be written.
  [[nodiscard]] Result<SpillExtent> allocate(std::uint64_t bytes);
  // Whether allocate() would refuse it whatever the state of the disks.
  [[nodiscard]] Status check_quota(std::uint64_t bytes) const;
  // kInternal, and no change, if it is not in use.
  [[nodiscard]] Status release(const SpillPosition& place, std::uint64_t bytes);
  // Frees all but the first `bytes` of the extent.
  void shrink(const SpillExtent& extent, std::uint64_t bytes);
  // Reports a failed write: frees the extent, and abandons its file unless the disk was merely full.
  void write_failed(const SpillExtent& extent, const Status& why);

  [[nodiscard]] Result<SpillExtent> find(const SpillPosition& place, std::uint64_t bytes) const;
  [[nodiscard]] bool is_used(const SpillPosition& place) const;

  // Removes retired files from the disk. Returns when to call it again (monotonic clock); UINT64_MAX: when
  // wants_sweep() says so.
  [[nodiscard]] std::uint64_t sweep();
  [[nodiscard]] bool wants_sweep() const;
  void remove_all();  // every file and every subdirectory; the last call

  [[nodiscard]] std::uint64_t used_bytes() const;  // in extents
  [[nodiscard]] std::uint64_t file_bytes() const;
  [[nodiscard]] const SpillLimits& limits() const { return limits_; }
  [[nodiscard]] const std::vector<SpillFolder>& folders() const { return folders_; }  // before the workers start
  // Whether, since the last call, the first directory (the manifest's) was recreated.
  [[nodiscard]] bool take_first_folder_recreated();
  [[nodiscard]] std::string note() const;  // why the last write found no space; empty if it did

 private:
  using Files = std::map<std::uint16_t, std::shared_ptr<SpillFile>>;

  [[nodiscard]] std::optional<SpillExtent> allocate_from_files(std::size_t folder, std::uint64_t bytes);
  [[nodiscard]] Result<std::uint64_t> check_new_file(std::size_t folder, std::uint64_t bytes,
                                                     std::unique_lock<std::mutex>& lock);
  void recreate_missing_folders();
  void abandon_removed_files(std::size_t folder);
  void punch_free(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::uint64_t quota_left() const;
  [[nodiscard]] Status grow(std::size_t folder, std::uint64_t bytes, std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Result<std::shared_ptr<SpillFile>> create_file(std::size_t folder, std::uint16_t number,
                                                               std::uint64_t bytes);
  [[nodiscard]] std::uint16_t free_number();
  void retire(Files::iterator file);  // to be removed by the next sweep
  void on_emptied(const std::shared_ptr<SpillFile>& file);
  [[nodiscard]] std::uint64_t retire_expired();
  void retire_all_empty();
  [[nodiscard]] Status quota_error(std::uint64_t bytes) const;
  // Back-off of a directory that failed.
  struct Backoff {
    std::uint64_t until_ns = 0;
    std::string why;
  };
  [[nodiscard]] bool is_backing_off(std::size_t folder) const;
  void back_off(std::size_t folder, const Status& why);

  os::FileIo& io_;
  // Paths never change; the other fields of a recreated directory change under growing_.
  std::vector<SpillFolder> folders_;
  const SpillLimits limits_;
  const std::uint64_t default_file_bytes_;  // default size of a file

  mutable std::mutex mutex_;  // guards all below
  std::mutex growing_;        // serializes file creation; taken before mutex_
  // By directory, under growing_: when to retry one that is gone; 0: it exists.
  std::vector<std::uint64_t> missing_until_ns_;
  Files files_;
  std::vector<std::shared_ptr<SpillFile>> retired_;
  std::set<std::uint16_t> busy_numbers_;  // being created, or retired and not yet removed
  std::vector<Backoff> backoffs_;         // by directory
  bool adopting_ = false;                 // open_existing() without adopt_end(): files that look empty may hold copies
  bool has_new_empty_ = false;            // since the last sweep
  std::uint64_t file_bytes_ = 0;          // of all files, not counting holes
  std::uint64_t used_bytes_ = 0;
  bool first_folder_recreated_ = false;
  std::size_t next_folder_ = 0;
  std::uint16_t next_number_ = 1;
  std::string note_;
};

}  // namespace entrepot
