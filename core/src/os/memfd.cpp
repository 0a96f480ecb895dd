#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "os/error.h"

namespace entrepot::os {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<struct stat> stat_of(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return errno_status(errno, concat("fstat of descriptor ", fd));
  return info;
}

Status call_fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t bytes, std::string_view what) {
  if (bytes == 0) return Status::ok();
  while (::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return errno_status(errno, concat(what, " of ", format_bytes(bytes), " at offset ", offset));
  }
  return Status::ok();
}

}  // namespace

Result<UniqueFd> create_memfd(const std::string& name, std::uint64_t bytes) {
  if (bytes == 0 || bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    return Status(Code::kInvalidArgument, concat("cannot create a memfd of ", bytes, " bytes"));
  }
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errno_status(errno, concat("memfd_create of ", name));
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return errno_status(errno, concat("fchmod of memfd ", name));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_status(errno, concat("sizing memfd ", name, " to ", format_bytes(bytes)));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return errno_status(errno, concat("sealing memfd ", name));
  return fd;
}

Status check_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return Status(Code::kInvalidArgument,
                  concat("descriptor ", fd, " is not a memfd; send the descriptor that the daemon provided"));
  }
  if ((seals & kSeals) != kSeals) {
    return Status(Code::kInvalidArgument,
                  concat("memfd of descriptor ", fd, " has seals ", seals, ", needs ", kSeals,
                         " (shrink, grow, seal); send the descriptor that the daemon provided"));
  }
  return Status::ok();
}

Result<UniqueFd> reopen_read_only(int fd) {
  const std::string path = concat("/proc/self/fd/", fd);
  UniqueFd copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy.valid()) return errno_status(errno, concat("reopening ", path, " read-only (is /proc mounted?)"));
  return copy;
}

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return errno_status(errno, concat("duplicating descriptor ", fd));
  return copy;
}

Result<std::uint64_t> file_bytes(int fd) {
  ASSIGN_OR_RETURN(const struct stat info, stat_of(fd));
  return static_cast<std::uint64_t>(info.st_size);
}

Result<std::uint64_t> resident_bytes(int fd) {
  ASSIGN_OR_RETURN(const struct stat info, stat_of(fd));
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> holes(int fd, std::uint64_t bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;
  ASSIGN_OR_RETURN(const std::uint64_t resident, resident_bytes(fd));
  std::uint64_t at = resident >= bytes ? bytes : 0;
  while (at < bytes) {
    const off_t hole = ::lseek(fd, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0) return errno_status(errno, "looking for holes");
    if (static_cast<std::uint64_t>(hole) >= bytes) break;
    const off_t data = ::lseek(fd, hole, SEEK_DATA);
    if (data < 0 && errno != ENXIO) return errno_status(errno, "looking for data after a hole");
    const std::uint64_t end = data < 0 ? bytes : std::min(static_cast<std::uint64_t>(data), bytes);
    holes.emplace_back(static_cast<std::uint64_t>(hole), end - static_cast<std::uint64_t>(hole));
    at = end;
  }
  return holes;
}

Result<bool> same_file(int a, int b) {
  ASSIGN_OR_RETURN(const struct stat first, stat_of(a));
  ASSIGN_OR_RETURN(const struct stat second, stat_of(b));
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool is_writable(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

Status reserve(int fd, std::uint64_t offset, std::uint64_t bytes) {
  return call_fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, bytes, "reserving memory (fallocate)");
}

Status punch(int fd, std::uint64_t offset, std::uint64_t bytes) {
  return call_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes,
                        "releasing memory (FALLOC_FL_PUNCH_HOLE)");
}

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace entrepot::os
