#include "os/store_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "base/text.h"
#include "os/error.h"
#include "os/memfd.h"

namespace entrepot::os {

namespace {

constexpr std::uint64_t kRetryMs = 10;  // F_SETLKW has no timeout

struct flock whole_file() {
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  return range;
}

}  // namespace

Result<UniqueFd> create_store_lock() { return create_memfd("entrepot-lock", page_bytes()); }

Status take_store_lock(int fd, Deadline deadline) {
  while (true) {
    struct flock wanted = whole_file();
    if (::fcntl(fd, F_SETLK, &wanted) == 0) return Status::ok();
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EACCES) return errno_status(errno, "locking the store");
    if (deadline.passed()) break;
    pause_ms(kRetryMs);
  }
  struct flock other = whole_file();
  const bool is_holder_known = ::fcntl(fd, F_GETLK, &other) == 0 && other.l_type != F_UNLCK;
  return Status(Code::kTimeout,
                concat("another daemon still holds this store",
                       is_holder_known ? concat(" (process ", other.l_pid, ")") : "", ": it must exit first"),
                true);
}

}  // namespace entrepot::os
