// SpillSpace: which parts of the spill files hold copies. Files are made ahead of need (their space on disk taken),
// used again and again, and removed when they have held nothing for a minute: to give space back costs the disk more
// than to write it.
//
// A file:  made ──▶ open (extents come and go) ──empty for long, or its room is needed──▶ removed
//                     └──an I/O error while writing──▶ abandoned (no new extents; copies in it stay readable)
//                                                        └──empty──▶ removed
// When the quota has no room for another file though copies take less, free ranges are punched: they cost nothing then,
// and count again when a copy is laid over them. The folders take turns. A folder whose disk is full or fails is left
// alone for half a minute. One that somebody removed is made again before the next copy is written: what it held stays
// readable by the open descriptors, and goes with the daemon.
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
#include "daemon/hole_set.h"
#include "daemon/spill_extent.h"
#include "daemon/spill_folder.h"
#include "os/direct_io.h"
#include "shm/extent_allocator.h"

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
  HoleSet holes;  // of what is free
  std::uint64_t empty_since_ns = 0;
  bool abandoned = false;
};

struct SpillExtent {
  std::shared_ptr<SpillFile> file;  // keeps the descriptor open while I/O is under way
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct SpillLimits {
  std::uint64_t quota_bytes = 0;                    // of the files together, without holes
  std::uint64_t reserve_bytes = 0;                  // of each disk, left free
  std::uint64_t keep_empty_ns = 60'000'000'000ULL;  // how long a file that holds nothing is kept
  std::uint64_t shy_ns = 30'000'000'000ULL;         // how long a folder that failed is left alone
};

// Any thread; allocate() and sweep() do I/O and are for the workers.
class SpillSpace {
 public:
  SpillSpace(os::FileIo& io, std::vector<SpillFolder> folders, SpillLimits limits);

  // Before the first allocation: takes the files that lie in the folders; all of them is free until adopted. A file
  // that cannot be used is logged and left.
  [[nodiscard]] Status open_found();
  // The extent of a copy that is there. kObjectLost if it is outside of its file; kCorruptData if two copies claim it.
  [[nodiscard]] Status adopt(const SpillPlace& place, std::uint64_t bytes);
  void adopt_end();

  // kStoreFull: quota, reserve or disk, with the figures. kInternal and others: no folder can be written.
  [[nodiscard]] Result<SpillExtent> allocate(std::uint64_t bytes);
  // Would allocate() refuse it whatever the disks say?
  [[nodiscard]] Status check_quota(std::uint64_t bytes) const;
  // kInternal, and nothing changed, if it is not in use.
  [[nodiscard]] Status release(const SpillPlace& place, std::uint64_t bytes);
  // Only the first `bytes` of the extent were needed.
  void shrink(const SpillExtent& extent, std::uint64_t bytes);
  // A write to the extent failed: its range is free again; unless the disk was merely full, its file is abandoned.
  void write_failed(const SpillExtent& extent, const Status& why);

  [[nodiscard]] Result<SpillExtent> find(const SpillPlace& place, std::uint64_t bytes) const;
  [[nodiscard]] bool is_used(const SpillPlace& place) const;

  // Removes from the disk what is to be removed. When to be called again (of the monotonic clock); UINT64_MAX: when
  // wants_sweep() says so.
  [[nodiscard]] std::uint64_t sweep();
  [[nodiscard]] bool wants_sweep() const;
  void remove_all();  // every file and every subfolder; the last call

  [[nodiscard]] std::uint64_t used_bytes() const;  // in extents
  [[nodiscard]] std::uint64_t file_bytes() const;
  [[nodiscard]] const SpillLimits& limits() const { return limits_; }
  [[nodiscard]] const std::vector<SpillFolder>& folders() const { return folders_; }  // before the workers start
  // Since the last call: is the first folder another than it was, without the manifest?
  [[nodiscard]] bool take_first_made_again();
  [[nodiscard]] std::string note() const;  // why the last write found no place; empty once one did

 private:
  using Files = std::map<std::uint16_t, std::shared_ptr<SpillFile>>;

  [[nodiscard]] std::optional<SpillExtent> take_from_files(std::size_t folder, std::uint64_t bytes);
  [[nodiscard]] Result<std::uint64_t> admit_file(std::size_t folder, std::uint64_t bytes,
                                                 std::unique_lock<std::mutex>& lock);
  void make_again_what_is_gone();
  void give_up_removed_files(std::size_t folder);
  void punch_free(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::uint64_t quota_left() const;
  [[nodiscard]] Status grow(std::size_t folder, std::uint64_t bytes, std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Result<std::shared_ptr<SpillFile>> make_file(std::size_t folder, std::uint16_t number,
                                                             std::uint64_t bytes);
  [[nodiscard]] std::uint16_t free_number();
  void retire(Files::iterator file);  // to be removed by the next sweep
  void emptied(const std::shared_ptr<SpillFile>& file);
  [[nodiscard]] std::uint64_t retire_old();
  void retire_all_empty();
  [[nodiscard]] Status quota_refusal(std::uint64_t bytes) const;
  // A folder that failed is left alone for a while.
  struct Shy {
    std::uint64_t until_ns = 0;
    std::string why;
  };
  [[nodiscard]] bool is_shy(std::size_t folder) const;
  void leave_alone(std::size_t folder, const Status& why);

  os::FileIo& io_;
  // Paths stay as they are; the rest of one that is made again changes under growing_.
  std::vector<SpillFolder> folders_;
  const SpillLimits limits_;
  const std::uint64_t usual_bytes_;  // of a file

  mutable std::mutex mutex_;  // guards all below
  std::mutex growing_;        // one worker makes files at a time; taken before mutex_
  // By folder, under growing_: one that is gone is tried again then; 0: it is there.
  std::vector<std::uint64_t> gone_until_ns_;
  Files files_;
  std::vector<std::shared_ptr<SpillFile>> retired_;
  std::set<std::uint16_t> busy_numbers_;  // being made, or retired and not yet removed
  std::vector<Shy> shy_;                  // by folder
  bool adopting_ = false;                 // open_found() without adopt_end(): what looks empty may be somebody's
  bool has_new_empty_ = false;            // since the last sweep
  std::uint64_t file_bytes_ = 0;          // of all files, without holes
  std::uint64_t used_bytes_ = 0;
  bool first_made_again_ = false;
  std::size_t next_folder_ = 0;
  std::uint16_t next_number_ = 1;
  std::string note_;
};

}  // namespace entrepot
