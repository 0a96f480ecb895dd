#include "os/error.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include "base/text.h"

namespace entrepot::os {

namespace {

std::uint64_t address_space_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

std::string explanation(int error) {
  switch (error) {
    case EFBIG:
      return ": exceeds the file size limit (ulimit -f), or that of the file system";
    case EMFILE: {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      return concat(": process ", ::getpid(), " (", program_invocation_short_name,
                    ") has used all of its file descriptors, limit ", limit.rlim_cur,
                    " (ulimit -n): close files and sockets in it, or start it with a higher limit");
    }
    case ENOMEM:
      if (const std::uint64_t limit = address_space_limit(); limit != UINT64_MAX) {
        return concat(": process ", ::getpid(), " (", program_invocation_short_name, ") may map ", format_bytes(limit),
                      " of addresses (ulimit -v): start it with a higher limit, or without one, since the whole store "
                      "is mapped piece by piece");
      }
      return {};
    case ENFILE:
      return ": this machine has no file descriptors left (/proc/sys/fs/file-max): stop programs, or raise the limit";
    default:
      return {};
  }
}

}  // namespace

Status errno_status(int error, std::string_view what) {
  const std::string message =
      concat(what, ": ", std::generic_category().message(error), " (errno ", error, ")", explanation(error));
  switch (error) {
    case ENOMEM:
      return Status(address_space_limit() == UINT64_MAX ? Code::kStoreFull : Code::kAccessDenied, message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Status(Code::kStoreFull, message);
    case EMFILE:
    case ENFILE:
      return Status(Code::kAccessDenied, message, true);
    case EACCES:
    case EPERM:
    case EROFS:
      return Status(Code::kAccessDenied, message);
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case ENOENT:
    case ESHUTDOWN:
      return Status(Code::kStoreUnavailable, message, true);
    case ETIMEDOUT:
    case EAGAIN:
      return Status(Code::kTimeout, message, true);
    default:
      return Status(Code::kInternal, message);
  }
}

std::uint64_t exhausted_descriptor_limit(std::uint32_t pid) {
  rlimit limit{};
  DIR* folder = ::opendir(concat("/proc/", pid, "/fd").c_str());
  if (folder == nullptr) return 0;
  std::uint64_t open_below = 0;
  if (::prlimit(static_cast<pid_t>(pid), RLIMIT_NOFILE, nullptr, &limit) == 0) {
    while (const dirent* entry = ::readdir(folder)) {
      std::uint64_t fd = 0;
      const char* end = entry->d_name + std::strlen(entry->d_name);
      if (std::from_chars(entry->d_name, end, fd).ptr == end && fd < limit.rlim_cur) ++open_below;
    }
  }
  ::closedir(folder);
  return open_below != 0 && open_below >= limit.rlim_cur ? limit.rlim_cur : 0;
}

}  // namespace entrepot::os
