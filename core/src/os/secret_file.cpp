#include "os/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "os/error.h"
#include "os/process.h"
#include "os/unique_fd.h"

namespace entrepot::os {

Result<std::string> read_secret_file(const std::string& path, std::uint64_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // do not block on a FIFO
  if (!fd.valid()) return errno_status(errno, concat("opening ", path));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return errno_status(errno, concat("stat of ", path));
  if (!S_ISREG(info.st_mode)) return Status(Code::kAccessDenied, concat(path, " is not a regular file"));
  if (info.st_uid != current_uid() && info.st_uid != 0) {
    return Status(Code::kAccessDenied, concat(path, " belongs to user ", info.st_uid, ", not to the current user (",
                                              current_uid(), ") or root"));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(Code::kAccessDenied,
                  concat("users other than its owner can read or write ", path, "; run: chmod 600 ", path));
  }
  std::string text(limit, '\0');
  std::size_t filled = 0;
  while (filled < limit) {
    const ssize_t got = ::read(fd.get(), text.data() + filled, limit - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(errno, concat("reading ", path));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace entrepot::os
