// I/O on payload files: bypasses the page cache where the file system allows it, and preallocates space. Functions are
// virtual so that tests can make the n-th call fail; each moves up to a few MiB, so the overhead is negligible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "os/mapping.h"
#include "os/unique_fd.h"

namespace entrepot::os {

inline constexpr std::uint64_t kDirectAlign = 4096;  // for addresses, offsets and lengths; enough for any disk

struct IoPiece {
  std::byte* data = nullptr;  // writes only read it
  std::uint64_t bytes = 0;
};

struct DiskSpace {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // available to us, without the part reserved for root
  bool in_memory = false;        // tmpfs or ramfs: not a disk
  std::uint64_t device = 0;      // equal for directories on one file system
};

enum class FileUse : std::uint8_t { kExisting, kNew };  // kNew: must not exist yet; mode 0600

// Callable from any thread.
class FileIo {
 public:
  virtual ~FileIo() = default;

  // Does not follow links. `direct` bypasses the page cache; kUnsupportedType where the file system cannot.
  [[nodiscard]] virtual Result<UniqueFd> open(const std::string& path, FileUse use, bool direct);
  // Sets the file's length, with space reserved on disk if the file system can promise that. kStoreFull if there is not
  // enough space.
  [[nodiscard]] virtual Status preallocate(int fd, std::uint64_t bytes);
  [[nodiscard]] virtual Status truncate(int fd, std::uint64_t bytes);

  // Returns the range's space to the file system; it reads as zeros, and takes up space again when written.
  [[nodiscard]] virtual Status punch(int fd, std::uint64_t offset, std::uint64_t bytes);

  // One system call: returns the number of bytes moved, possibly fewer than requested; a read of 0 is the end of the
  // file.
  [[nodiscard]] virtual Result<std::uint64_t> write_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset);
  [[nodiscard]] virtual Result<std::uint64_t> read_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset);

  [[nodiscard]] virtual Status sync(int fd);  // flushes data to disk
  [[nodiscard]] virtual Status rename(const std::string& from, const std::string& to);
  [[nodiscard]] virtual Status remove(const std::string& path);  // success if it does not exist
  [[nodiscard]] virtual Result<DiskSpace> space(const std::string& folder);
};

[[nodiscard]] FileIo& system_file_io();

// Transfers everything, even if the kernel stops short; resumes at the last multiple of kDirectAlign, so that direct
// I/O stays aligned. At most kMaxPieces pieces. kInternal, naming offset and missing bytes, if no progress is made.
inline constexpr std::size_t kMaxPieces = 8;
[[nodiscard]] Status write_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset);
// kCorruptData if the file ends early.
[[nodiscard]] Status read_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset);

// For files in the page cache: writes the range to disk and drops its pages. Best effort.
void drop_from_cache(int fd, std::uint64_t offset, std::uint64_t bytes);

// Tests whether `folder` supports direct I/O by writing and reading back a page in a temporary file. kStoreFull,
// kAccessDenied etc. if it cannot be written at all.
[[nodiscard]] Result<bool> probe_direct(FileIo& io, const std::string& folder);

// Memory aligned to kDirectAlign.
class AlignedBuffer {
 public:
  // Ensures at least `bytes`. Keeps the memory and its contents if it is large enough; otherwise it is new and zeroed.
  [[nodiscard]] Status ensure(std::uint64_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::uint64_t bytes() const { return memory_.bytes(); }

 private:
  Mapping memory_;
};

}  // namespace entrepot::os
