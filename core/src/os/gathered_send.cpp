#include "os/gathered_send.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace entrepot::os {
namespace {

constexpr std::size_t kMostRanges = 1000;  // the kernel takes 1024 in one call

}  // namespace

int send_all(int fd, std::span<const ByteRange> ranges) {
  std::vector<iovec> parts;
  parts.reserve(ranges.size());
  for (const ByteRange& range : ranges) {
    if (!range.empty()) parts.push_back({const_cast<std::byte*>(range.data()), range.size()});
  }
  std::size_t first = 0;
  while (first < parts.size()) {
    msghdr message{};
    message.msg_iov = &parts[first];
    message.msg_iovlen = std::min(kMostRanges, parts.size() - first);
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    auto done = static_cast<std::size_t>(sent);
    while (first < parts.size() && done >= parts[first].iov_len) {
      done -= parts[first].iov_len;
      ++first;
    }
    if (done > 0) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + done;
      parts[first].iov_len -= done;
    }
  }
  return 0;
}

}  // namespace entrepot::os
