// Files that hold payload: I/O past the page cache where the file system allows it, space taken ahead of need. The
// calls are virtual so that a test can make the n-th of them fail; each moves up to some MiB, beside which that costs
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/mapping.h"

namespace entrepot::os {

inline constexpr std::uint64_t kDirectAlign = 4096;  // of addresses, offsets and lengths; enough for every disk

struct IoPiece {
  std::byte* data = nullptr;  // only read by writes
  std::uint64_t bytes = 0;
};

struct DiskSpace {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for us, not for root alone
  bool in_memory = false;        // tmpfs or ramfs: no disk at all
  std::uint64_t device = 0;      // equal for folders of one file system
};

enum class FileUse : std::uint8_t { kExisting, kNew };  // kNew: it must not be there yet; mode 0600

// Any thread.
class FileIo {
 public:
  virtual ~FileIo() = default;

  // Links are not followed. With `direct` past the page cache; kUnsupportedType where the file system cannot.
  [[nodiscard]] virtual Result<UniqueFd> open(const std::string& path, FileUse use, bool direct);
  // Makes it `bytes` long, with its space on disk where the file system can promise that. kStoreFull: there is not so
  // much.
  [[nodiscard]] virtual Status preallocate(int fd, std::uint64_t bytes);
  [[nodiscard]] virtual Status truncate(int fd, std::uint64_t bytes);

  // Gives the range's space back to the disk; it reads as zeros and takes space again when it is written.
  [[nodiscard]] virtual Status punch(int fd, std::uint64_t offset, std::uint64_t bytes);

  // One system call: how many bytes were moved, perhaps fewer than asked for; a read of 0 is the end of the file.
  [[nodiscard]] virtual Result<std::uint64_t> write_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset);
  [[nodiscard]] virtual Result<std::uint64_t> read_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset);

  [[nodiscard]] virtual Status sync(int fd);  // its data is on the disk
  [[nodiscard]] virtual Status rename(const std::string& from, const std::string& to);
  [[nodiscard]] virtual Status remove(const std::string& path);  // one that is not there is success
  [[nodiscard]] virtual Result<DiskSpace> space(const std::string& folder);
};

[[nodiscard]] FileIo& system_file_io();

// All of it, however often the kernel stops short; goes on from the last whole page of kDirectAlign, so that direct I/O
// stays aligned. At most kMaxPieces pieces. kInternal names offset and what is missing where nothing moves any more.
inline constexpr std::size_t kMaxPieces = 8;
[[nodiscard]] Status write_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset);
// kCorruptData if the file ends before.
[[nodiscard]] Status read_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset);

// For files in the page cache: sends the range to the disk and lets its pages go. Best effort.
void drop_from_cache(int fd, std::uint64_t offset, std::uint64_t bytes);

// Can `folder` do direct I/O? Writes a page to a file of its own there and reads it back; kStoreFull, kAccessDenied and
// the like if it cannot be written at all.
[[nodiscard]] Result<bool> probe_direct(FileIo& io, const std::string& folder);

// Memory at kDirectAlign.
class AlignedBuffer {
 public:
  // At least `bytes`, kept if it is large enough already; the contents are then what they were, else zeros.
  [[nodiscard]] Status ensure(std::uint64_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::uint64_t bytes() const { return memory_.bytes(); }

 private:
  Mapping memory_;
};

}  // namespace entrepot::os
