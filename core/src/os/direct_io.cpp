#include "os/direct_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/align.h"
#include "base/text.h"
#include "os/error.h"
#include "os/memfd.h"
#include "os/random.h"

namespace entrepot::os {

namespace {

constexpr long kTmpfsMagic = 0x01021994;
constexpr long kRamfsMagic = 0x858458f6;
constexpr int kMaxStuck = 4;  // consecutive calls that move less than a page before giving up

using Vector = std::array<iovec, kMaxPieces>;

Result<std::size_t> fill(Vector& vector, std::span<const IoPiece> pieces) {
  if (pieces.size() > vector.size()) return Status(Code::kInternal, concat(pieces.size(), " pieces in one I/O"));
  std::size_t count = 0;
  for (const IoPiece& piece : pieces) {
    if (piece.bytes > 0) vector[count++] = {piece.data, piece.bytes};
  }
  return count;
}

// Computes what is left of `pieces` after `done` bytes.
std::size_t rest_of(std::span<const IoPiece> pieces, std::uint64_t done, std::array<IoPiece, kMaxPieces>& rest) {
  std::size_t count = 0;
  for (const IoPiece& piece : pieces) {
    const std::uint64_t skip = std::min(done, piece.bytes);
    done -= skip;
    if (skip < piece.bytes) rest[count++] = {piece.data + skip, piece.bytes - skip};
  }
  return count;
}

template <class Move>
Status move_fully(std::span<const IoPiece> pieces, std::uint64_t offset, std::string_view what, Code at_end,
                  Move&& move) {
  if (pieces.size() > kMaxPieces) return Status(Code::kInternal, concat(pieces.size(), " pieces in one I/O"));
  std::uint64_t total = 0;
  for (const IoPiece& piece : pieces)
    total += piece.bytes;
  std::uint64_t done = 0;
  int stuck = 0;
  while (done < total) {
    std::array<IoPiece, kMaxPieces> rest{};
    const std::size_t count = rest_of(pieces, done, rest);
    ASSIGN_OR_RETURN(const std::uint64_t moved, move(std::span<const IoPiece>(rest.data(), count), offset + done));
    if (moved >= total - done) return Status::ok();
    if (moved == 0 && at_end != Code::kOk) {
      return Status(at_end, concat("the file ends at ", offset + done, ", ", total - done, " bytes too early"));
    }
    const std::uint64_t whole = (done + moved) & ~(kDirectAlign - 1);
    stuck = whole > done ? 0 : stuck + 1;
    if (stuck == kMaxStuck) {
      return Status(Code::kInternal,
                    concat(what, " at ", offset + done, " makes no progress: ", total - done, " bytes remain"));
    }
    done = std::max(done, whole);
  }
  return Status::ok();
}

}  // namespace

Result<UniqueFd> FileIo::open(const std::string& path, FileUse use, bool direct) {
  const int made = use == FileUse::kNew ? O_CREAT | O_EXCL : 0;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | made | (direct ? O_DIRECT : 0), 0600));
  if (fd.valid()) return fd;
  const int error = errno;
  if (error == EINVAL && direct) {
    // Some kernels have already created the file by then.
    if (use == FileUse::kNew) RETURN_IF_ERROR(remove(path));
    return Status(Code::kUnsupportedType, concat("direct I/O is not supported for ", path));
  }
  return errno_status(error, concat("open of ", path));
}

Status FileIo::preallocate(int fd, std::uint64_t bytes) {
  while (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP) return truncate(fd, bytes);  // a later write may then find the disk full
    return errno_status(errno, concat("allocating ", format_bytes(bytes), " on the disk"));
  }
  return Status::ok();
}

Status FileIo::truncate(int fd, std::uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return Status::ok();
  return errno_status(errno, concat("setting a file's length to ", bytes));
}

Status FileIo::punch(int fd, std::uint64_t offset, std::uint64_t bytes) { return os::punch(fd, offset, bytes); }

Result<std::uint64_t> FileIo::write_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset) {
  Vector vector{};
  ASSIGN_OR_RETURN(const std::size_t count, fill(vector, pieces));
  while (true) {
    const ssize_t moved = ::pwritev(fd, vector.data(), static_cast<int>(count), static_cast<off_t>(offset));
    if (moved >= 0) return static_cast<std::uint64_t>(moved);
    if (errno != EINTR) return errno_status(errno, concat("writing at ", offset));
  }
}

Result<std::uint64_t> FileIo::read_some(int fd, std::span<const IoPiece> pieces, std::uint64_t offset) {
  Vector vector{};
  ASSIGN_OR_RETURN(const std::size_t count, fill(vector, pieces));
  while (true) {
    const ssize_t moved = ::preadv(fd, vector.data(), static_cast<int>(count), static_cast<off_t>(offset));
    if (moved >= 0) return static_cast<std::uint64_t>(moved);
    if (errno != EINTR) return errno_status(errno, concat("reading at ", offset));
  }
}

Status FileIo::sync(int fd) {
  if (::fdatasync(fd) == 0) return Status::ok();
  return errno_status(errno, "syncing a file to disk");
}

Status FileIo::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return Status::ok();
  return errno_status(errno, concat("renaming ", from, " to ", to));
}

Status FileIo::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Status::ok();
  return errno_status(errno, concat("removing ", path));
}

Result<DiskSpace> FileIo::space(const std::string& folder) {
  struct statfs info{};
  while (::statfs(folder.c_str(), &info) != 0) {
    if (errno != EINTR) return errno_status(errno, concat("querying the free space of ", folder));
  }
  const auto block = static_cast<std::uint64_t>(info.f_bsize);
  DiskSpace space;
  space.total_bytes = static_cast<std::uint64_t>(info.f_blocks) * block;
  space.free_bytes = static_cast<std::uint64_t>(info.f_bavail) * block;
  struct stat file{};
  if (::stat(folder.c_str(), &file) == 0) space.device = file.st_dev;
  space.in_memory = info.f_type == kTmpfsMagic || info.f_type == kRamfsMagic;
  return space;
}

FileIo& system_file_io() {
  static FileIo io;
  return io;
}

Status write_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset) {
  return move_fully(pieces, offset, "a write", Code::kOk,
                    [&](std::span<const IoPiece> rest, std::uint64_t at) { return io.write_some(fd, rest, at); });
}

Status read_fully(FileIo& io, int fd, std::span<const IoPiece> pieces, std::uint64_t offset) {
  return move_fully(pieces, offset, "a read", Code::kCorruptData,
                    [&](std::span<const IoPiece> rest, std::uint64_t at) { return io.read_some(fd, rest, at); });
}

void drop_from_cache(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const auto first = static_cast<off_t>(offset);
  const auto length = static_cast<off_t>(bytes);
  constexpr unsigned kSend = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  (void)::sync_file_range(fd, first, length, kSend);
  (void)::posix_fadvise(fd, first, length, POSIX_FADV_DONTNEED);
}

Result<bool> probe_direct(FileIo& io, const std::string& folder) {
  const std::string path = concat(folder, "/probe-", random_u64());
  AlignedBuffer pages;
  RETURN_IF_ERROR(pages.ensure(2 * kDirectAlign));
  std::memset(pages.data(), 0x5a, kDirectAlign);
  const IoPiece out{pages.data(), kDirectAlign};
  const IoPiece back{pages.data() + kDirectAlign, kDirectAlign};
  bool direct = true;
  while (true) {
    auto fd = io.open(path, FileUse::kNew, direct);
    if (!fd.is_ok() && fd.code() == Code::kUnsupportedType && direct) {
      direct = false;
      continue;
    }
    RETURN_IF_ERROR(fd);
    Status tried = write_fully(io, fd->get(), {&out, 1}, 0);
    if (tried.is_ok()) tried = read_fully(io, fd->get(), {&back, 1}, 0);
    RETURN_IF_ERROR(io.remove(path));
    if (tried.is_ok()) return direct && std::memcmp(out.data, back.data, kDirectAlign) == 0;
    if (!direct || tried.code() == Code::kStoreFull) return tried;
    direct = false;  // opened, but I/O was refused, as some layered file systems do
  }
}

Status AlignedBuffer::ensure(std::uint64_t bytes) {
  if (memory_.bytes() >= bytes) return Status::ok();
  ASSIGN_OR_RETURN(memory_, Mapping::anonymous(round_up(bytes, kDirectAlign)));
  return Status::ok();
}

}  // namespace entrepot::os
