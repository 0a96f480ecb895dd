#include "os/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "os/error.h"
#include "os/events.h"

namespace entrepot::os {

namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) || path.find('\0') != std::string::npos) {
    return Status(
        Code::kInvalidArgument,
        concat("the socket path \"", path, "\" has ", path.size(), " bytes; a unix socket's path can have 1 to ",
               sizeof(address.sun_path) - 1, ": choose a folder with a shorter path"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

Result<UniqueFd> stream_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return errno_status(errno, "creating a unix socket");
  return fd;
}

// Removes a socket file that nobody listens on any more.
Status clear_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status::ok() : errno_status(errno, concat("stat of ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Status(Code::kInvalidArgument, concat(path, " exists and is not a socket; choose another address"));
  }
  ASSIGN_OR_RETURN(const UniqueFd probe, stream_socket(SOCK_NONBLOCK));
  // EAGAIN: somebody listens, but the queue is full.
  if (::connect(probe.get(), generic(address), sizeof(address)) == 0 || errno == EAGAIN) {
    return Status(Code::kStoreUnavailable, concat("another daemon is listening on ", path));
  }
  if (errno != ECONNREFUSED && errno != ENOENT)
    return errno_status(errno, concat("probing the existing socket ", path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return errno_status(errno, concat("removing the stale socket ", path));
  return Status::ok();
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, int backlog) {
  ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  RETURN_IF_ERROR(clear_stale(path, address));
  ASSIGN_OR_RETURN(UniqueFd fd, stream_socket(SOCK_NONBLOCK));
  // bind() gives the file the socket's own mode (which the umask can only restrict).
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return errno_status(errno, "fchmod of the listening socket");
  if (::bind(fd.get(), generic(address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE) {
      return Status(Code::kStoreUnavailable, concat("another daemon is just starting to listen on ", path), true);
    }
    return errno_status(errno, concat("binding ", path));
  }
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) return errno_status(errno, concat("chmod of ", path));
  if (::listen(fd.get(), backlog) != 0) return errno_status(errno, concat("listening on ", path));
  return fd;
}

bool is_socket_abandoned(const std::string& path) {
  const auto address = address_of(path);
  if (!address.is_ok()) return false;
  // A datagram socket cannot be connected to a stream socket. The kernel says so only after it has found that one.
  const UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe.valid() && ::connect(probe.get(), generic(*address), sizeof(*address)) != 0 && errno == ECONNREFUSED;
}

Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline) {
  ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  while (true) {
    ASSIGN_OR_RETURN(UniqueFd fd, stream_socket(SOCK_NONBLOCK));
    if (::connect(fd.get(), generic(address), sizeof(address)) == 0) {
      RETURN_IF_ERROR(set_nonblocking(fd.get(), false));
      return fd;
    }
    // A Unix socket connects at once, or returns EAGAIN while the listener's queue is full.
    if (errno != EAGAIN && errno != EINTR) return errno_status(errno, concat("connecting to ", path));
    if (deadline.passed()) {
      return Status(Code::kTimeout,
                    concat("connecting to ", path, " timed out: the daemon is not accepting connections"), true);
    }
    const timespec pause{0, 2'000'000};  // no event tells when the queue has space again
    ::nanosleep(&pause, nullptr);
  }
}

Result<UniqueFd> accept_unix(int listening) {
  while (true) {
    UniqueFd fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return fd;
    if (errno == EAGAIN) return UniqueFd();
    if (errno != EINTR && errno != ECONNABORTED) return errno_status(errno, "accepting a connection");
  }
}

Result<std::pair<UniqueFd, UniqueFd>> socket_pair(SocketKind kind) {
  std::array<int, 2> fds{};
  const int type = kind == SocketKind::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds.data()) != 0) return errno_status(errno, "socketpair");
  return std::pair<UniqueFd, UniqueFd>(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

void request_send_buffer(int socket, int bytes) {
  // SO_SNDBUFFORCE exceeds the system's limit, but requires root.
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) == 0) return;
  [[maybe_unused]] const int set = ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return errno_status(errno, "getting the peer's credentials (SO_PEERCRED)");
  }
  return PeerCredentials{static_cast<std::uint32_t>(credentials.pid), credentials.uid, credentials.gid};
}

Status request_sender(int socket) {
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0) return Status::ok();
  return errno_status(errno, "requesting senders' credentials (SO_PASSCRED)");
}

std::uint32_t sender_of_next(int socket) {
  alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(sizeof(ucred))> ancillary{};
  std::uint8_t byte = 0;
  iovec part{&byte, sizeof(byte)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  if (::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) <= 0) return 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS) continue;
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(head), sizeof(credentials));
    return static_cast<std::uint32_t>(credentials.pid);
  }
  return 0;
}

Status set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return errno_status(errno, concat("fcntl of descriptor ", fd));
  if (::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) != 0) {
    return errno_status(errno, concat("fcntl of descriptor ", fd));
  }
  return Status::ok();
}

Result<IoResult> send_some(int socket, std::span<const std::uint8_t> data, std::span<const int> fds) {
  if (fds.size() > kMaxFdsPerMessage) {
    return Status(Code::kInvalidArgument,
                  concat(fds.size(), " descriptors in one message exceed the limit of ", kMaxFdsPerMessage));
  }
  alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)> ancillary{};
  iovec part{const_cast<std::uint8_t*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = ancillary.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return IoResult{static_cast<std::size_t>(sent), false, false};
    if (errno == EAGAIN) return IoResult{0, true, false};
    if (errno == ETOOMANYREFS) {
      return Status(Code::kStoreFull, "too many descriptors are in flight in unix sockets", true);
    }
    if (errno != EINTR) return errno_status(errno, "sending");
  }
}

Result<IoResult> receive_some(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds) {
  alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)> ancillary{};
  iovec part{data.data(), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  const std::size_t before = fds.size();
  ssize_t got = 0;
  while ((got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EAGAIN) return IoResult{0, true, false};
    if (errno != EINTR) return errno_status(errno, "receiving");
  }
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);  // take ownership first, check below
    }
  }
  IoResult result{static_cast<std::size_t>(got), false, got == 0 && !data.empty()};
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (fds.size() - before >= kMaxFdsPerMessage) {
      return Status(Code::kInvalidArgument,
                    concat("received a message with more than ", kMaxFdsPerMessage, " descriptors"));
    }
    result.fds_lost = true;  // they fit into the message, but not into our descriptor table
  }
  return result;
}

Result<IoResult> peek_some(int socket, std::span<std::uint8_t> data) {
  iovec part{data.data(), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t got = 0;
  while ((got = ::recvmsg(socket, &message, MSG_PEEK)) < 0) {
    if (errno == EAGAIN) return IoResult{0, true, false};
    if (errno != EINTR) return errno_status(errno, "looking at what has been received");
  }
  IoResult result{static_cast<std::size_t>(got), false, got == 0 && !data.empty()};
  result.fds_lost = (message.msg_flags & MSG_CTRUNC) != 0;  // there is no room for any
  return result;
}

Status send_all(int socket, std::span<const std::uint8_t> data, std::span<const int> fds, Deadline deadline) {
  while (!data.empty()) {
    const std::size_t piece = data.size() < (64U << 10) ? data.size() : std::size_t{64U << 10};
    ASSIGN_OR_RETURN(const IoResult moved, send_some(socket, data.first(piece), fds));
    if (moved.would_block) {
      ASSIGN_OR_RETURN(const bool ready, wait_writable(socket, deadline));
      if (!ready) return Status(Code::kTimeout, "the peer does not accept data", true);
      continue;
    }
    if (moved.bytes > 0) fds = {};
    data = data.subspan(moved.bytes);
  }
  return Status::ok();
}

Status receive_all(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds, Deadline deadline) {
  while (!data.empty()) {
    ASSIGN_OR_RETURN(const bool ready, wait_readable(socket, deadline));
    if (!ready) return Status(Code::kTimeout, "the peer does not respond", true);
    ASSIGN_OR_RETURN(const IoResult moved, receive_some(socket, data, fds));
    if (moved.closed) return Status(Code::kStoreUnavailable, "the peer closed the connection", true);
    if (moved.fds_lost) return errno_status(EMFILE, "receiving descriptors");
    data = data.subspan(moved.bytes);
  }
  return Status::ok();
}

}  // namespace entrepot::os
