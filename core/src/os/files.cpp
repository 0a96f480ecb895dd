#include "os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/text.h"
#include "os/error.h"
#include "os/process.h"
#include "os/unique_fd.h"

namespace entrepot::os {

namespace {

std::string octal(mode_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3)
    text.push_back(static_cast<char>('0' + ((mode >> shift) & 7U)));
  return text;
}

Status make_parents(const std::string& path) {
  const std::string parent = folder_of(path);
  struct stat info{};
  if (::stat(parent.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return Status::ok();
    return Status(Code::kInvalidArgument, concat(parent, " is not a folder"));
  }
  if (errno != ENOENT) return errno_status(errno, concat("stat of the folder ", parent));
  RETURN_IF_ERROR(make_parents(parent));
  if (::mkdir(parent.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return errno_status(errno, concat("creating the folder ", parent));
  }
  return Status::ok();
}

Result<struct stat> stat_folder(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) {
      return Status(Code::kInvalidArgument,
                    concat("the folder ", path, " does not exist; create it or choose another one"));
    }
    return errno_status(errno, concat("stat of the folder ", path));
  }
  if (!S_ISDIR(info.st_mode)) return Status(Code::kInvalidArgument, concat(path, " is not a folder"));
  return info;
}

}  // namespace

Result<UniqueFd> lock_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return errno_status(errno, concat("open of ", path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Status(Code::kStoreUnavailable, concat("another process holds ", path), true);
    return errno_status(errno, concat("lock of ", path));
  }
  // A previous holder may have removed the file; another process would then lock a different file of the same name.
  if (!is_file_at(fd.get(), path)) {
    return Status(Code::kStoreUnavailable, concat(path, " was removed in the meantime"), true);
  }
  return fd;
}

Result<UniqueFd> open_path(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return errno_status(errno, concat("opening ", path));
  return fd;
}

bool is_file_at(int fd, const std::string& path) {
  struct stat open{};
  struct stat existing{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &existing) == 0 && existing.st_ino == open.st_ino &&
         existing.st_dev == open.st_dev;
}

Status replace_text(int fd, std::string_view text) {
  // Written over the old text before that is cut off: a process killed in between leaves no empty file.
  if (::lseek(fd, 0, SEEK_SET) < 0) return errno_status(errno, "seeking in a file");
  RETURN_IF_ERROR(write_text(fd, text));
  if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0) return errno_status(errno, "truncating a file");
  return Status::ok();
}

Status redirect_output(const std::string& path) {
  // Opening a FIFO only for writing blocks until somebody reads it; opening it for reading too never blocks, now or
  // when its reader goes away and returns.
  struct stat info{};
  const bool fifo = ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
  UniqueFd fd(::open(path.c_str(), (fifo ? O_RDWR : O_WRONLY | O_CREAT) | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd.valid()) return errno_status(errno, concat("open of ", path));
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return errno_status(errno, concat("changing the flags of ", path));
  }
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(fd.get(), output) < 0) return errno_status(errno, concat("redirecting output to ", path));
  }
  return Status::ok();
}

Status write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status(errno, "writing");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status::ok();
}

std::string folder_of(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  const std::size_t slash = end == std::string::npos ? std::string::npos : path.rfind('/', end);
  if (slash == std::string::npos) return path.starts_with('/') ? "/" : ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

Status ensure_private_folder(const std::string& path) {
  if (path.empty()) return Status(Code::kInvalidArgument, "the folder's path is empty");
  RETURN_IF_ERROR(make_parents(path));
  return ensure_private_subfolder(path);
}

Status ensure_private_subfolder(const std::string& path) {
  if (path.empty()) return Status(Code::kInvalidArgument, "the folder's path is empty");
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    if (errno == ENOENT) {
      return Status(Code::kInvalidArgument, concat("cannot create the folder ", path, ": ", folder_of(path),
                                                   " does not exist; create it or choose another folder"));
    }
    return errno_status(errno, concat("creating the folder ", path));
  }
  // lstat, because a link planted in place of our directory would lead elsewhere.
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return errno_status(errno, concat("stat of the folder ", path));
  if (!S_ISDIR(info.st_mode)) {
    return Status(Code::kAccessDenied, concat(path, " is not a folder (a link is not accepted here); remove it"));
  }
  if (info.st_uid != current_uid()) {
    return Status(Code::kAccessDenied,
                  concat("the folder ", path, " belongs to user ", info.st_uid, ", not to the current user (",
                         current_uid(), "); choose another folder"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) != 0) {
    return Status(Code::kAccessDenied, concat("the folder ", path, " is shared by all users (mode ",
                                              octal(info.st_mode), "); choose your own folder inside it"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(Code::kAccessDenied, concat("other users can write to the folder ", path, " (mode ",
                                              octal(info.st_mode), "); run: chmod 700 ", path));
  }
  return Status::ok();
}

Status check_folder_safe(const std::string& path) {
  ASSIGN_OR_RETURN(const struct stat info, stat_folder(path));
  if (info.st_uid != current_uid() && info.st_uid != 0) {
    return Status(Code::kAccessDenied,
                  concat("the folder ", path, " belongs to user ", info.st_uid, ", not to the current user (",
                         current_uid(), ") or root; choose another folder"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return Status(Code::kAccessDenied, concat("other users can replace files in the folder ", path, " (mode ",
                                              octal(info.st_mode), "); run: chmod go-w ", path));
  }
  return Status::ok();
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_status(errno, concat("removing ", path));
  return Status::ok();
}

bool file_exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return errno_status(errno, concat("listing the folder ", path));
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(folder);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int error = errno;
  ::closedir(folder);
  if (error != 0) return errno_status(error, concat("listing the folder ", path));
  return names;
}

Status remove_folder(const std::string& path) {
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return errno_status(errno, concat("removing the folder ", path));
  return Status::ok();
}

Result<std::uint64_t> modified_unix_ns(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return errno_status(errno, concat("stat of ", path));
  return static_cast<std::uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(info.st_mtim.tv_nsec);
}

Result<std::uint64_t> bytes_on_disk(const std::string& path) {
  constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's own are
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return errno_status(errno, concat("stat of ", path));
  return static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes;
}

bool is_plain_file(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<std::string> read_file(const std::string& path, std::uint64_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_status(errno, concat("opening ", path));
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() < limit) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, concat("reading ", path));
    }
    if (got == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (text.size() > limit) text.resize(limit);
  return text;
}

}  // namespace entrepot::os
