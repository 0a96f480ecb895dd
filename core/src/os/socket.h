// Unix sockets with descriptor passing (SCM_RIGHTS). All descriptors created here are close-on-exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace entrepot::os {

inline constexpr std::size_t kMaxFdsPerMessage = 64;

// Creates a listening stream socket at `path`, mode 0600, non-blocking. Replaces a socket file that nobody listens on.
// kStoreUnavailable ("another daemon is listening") if one answers; kInvalidArgument if the path is not a socket or too
// long for sun_path. The caller checks the directory (os/files.h, ensure_private_folder).
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& path, int backlog = 128);

// True if no process has the socket at `path` any more, as after a kill. A listener does not notice the question.
[[nodiscard]] bool is_socket_abandoned(const std::string& path);

// Connects with a deadline; the socket is left in blocking mode. kStoreUnavailable if nobody listens.
[[nodiscard]] Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline);

// Accepts the next connection, non-blocking; an invalid descriptor if none is pending.
[[nodiscard]] Result<UniqueFd> accept_unix(int listening);

enum class SocketKind : std::uint8_t { kStream, kSeqPacket };
[[nodiscard]] Result<std::pair<UniqueFd, UniqueFd>> socket_pair(SocketKind kind);

// Requests a send buffer of about `bytes`, if the system grants it. Best effort.
void request_send_buffer(int socket, int bytes);

struct PeerCredentials {
  std::uint32_t pid = 0;  // 0 if it is in a PID namespace that we cannot see
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};
[[nodiscard]] Result<PeerCredentials> peer_credentials(int socket);

// For a socket whose other end was handed to another process than the one that created it: the kernel adds to what is
// sent to this socket from now on who sends it.
[[nodiscard]] Status request_sender(int socket);
// The process that has sent what is to be received next, which stays there; 0: nothing has come, it was sent before
// request_sender(), or by a process in a PID namespace that we cannot see.
[[nodiscard]] std::uint32_t sender_of_next(int socket);

[[nodiscard]] Status set_nonblocking(int fd, bool on);

struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing was transferred; retry when poll says so
  bool closed = false;       // receive only: end of file
  bool fds_lost = false;     // receive only: descriptors were sent, but not all could be received (ulimit -n)
};

// Calls sendmsg once. Descriptors travel with the first byte; `bytes` > 0 means that they were sent. kStoreUnavailable
// if the peer is gone (never SIGPIPE).
[[nodiscard]] Result<IoResult> send_some(int socket, std::span<const std::uint8_t> data, std::span<const int> fds = {});

// Calls recvmsg once and appends received descriptors to `fds`. kInvalidArgument for more than kMaxFdsPerMessage in one
// message.
[[nodiscard]] Result<IoResult> receive_some(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds);

// Calls recvmsg once and leaves in the socket what it copies. `fds_lost`: descriptors have come with these bytes; they,
// too, stay there.
[[nodiscard]] Result<IoResult> peek_some(int socket, std::span<std::uint8_t> data);

// Sends all of `data`, waiting as needed; kTimeout at the deadline, kStoreUnavailable if the peer is gone.
[[nodiscard]] Status send_all(int socket, std::span<const std::uint8_t> data, std::span<const int> fds,
                              Deadline deadline);
// Receives exactly data.size() bytes. kStoreUnavailable if the stream ends before that.
[[nodiscard]] Status receive_all(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds,
                                 Deadline deadline);

}  // namespace entrepot::os
