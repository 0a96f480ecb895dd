#include "os/unique_fd.h"

#include <unistd.h>

#include <cerrno>

namespace entrepot {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) {
    const int saved = errno;
    // Linux closes the descriptor even if close() is interrupted, so close() must not be retried.
    ::close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

}  // namespace entrepot
