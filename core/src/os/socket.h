// Unix sockets, with descriptors that travel along (SCM_RIGHTS). Every descriptor made here is close-on-exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/clock.h"

namespace entrepot::os {

inline constexpr std::size_t kMaxFdsPerMessage = 64;

// A listening stream socket at `path`, mode 0600, non-blocking. A socket file that nobody listens on is replaced; one
// that answers is kStoreUnavailable ("another daemon is listening"); a path that is not a socket, or too long for
// sun_path, is kInvalidArgument. The folder is the caller's matter (os/files.h, ensure_private_folder).
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& path, int backlog = 128);

// Blocking connect with a deadline; the socket is left blocking. kStoreUnavailable if nobody listens.
[[nodiscard]] Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline);

// The next connection, non-blocking; an invalid descriptor if there is none just now.
[[nodiscard]] Result<UniqueFd> accept_unix(int listening);

enum class SocketKind : std::uint8_t { kStream, kSeqPacket };
[[nodiscard]] Result<std::pair<UniqueFd, UniqueFd>> socket_pair(SocketKind kind);

// Room for about so many bytes that were sent and not received yet, where the system grants it. Best effort.
void want_send_room(int socket, int bytes);

struct PeerCredentials {
  std::uint32_t pid = 0;  // 0 if it lies in a namespace that we cannot see
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};
[[nodiscard]] Result<PeerCredentials> peer_credentials(int socket);

[[nodiscard]] Status set_nonblocking(int fd, bool on);

struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing moved; try again when poll says so
  bool closed = false;       // receive only: end of file
  bool fds_lost = false;     // receive only: descriptors came, and this process could not take all (ulimit -n)
};

// One sendmsg. Descriptors go with the first byte; `bytes` > 0 means they went. A peer that is gone is
// kStoreUnavailable (never SIGPIPE).
[[nodiscard]] Result<IoResult> send_some(int socket, std::span<const std::uint8_t> data, std::span<const int> fds = {});

// One recvmsg; descriptors that came are appended to `fds`. More than kMaxFdsPerMessage in one message is
// kInvalidArgument.
[[nodiscard]] Result<IoResult> receive_some(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds);

// All of `data`, waiting as needed; kTimeout at the deadline, kStoreUnavailable if the peer is gone.
[[nodiscard]] Status send_all(int socket, std::span<const std::uint8_t> data, std::span<const int> fds,
                              Deadline deadline);
// Exactly data.size() bytes. End of file before that is kStoreUnavailable.
[[nodiscard]] Status receive_all(int socket, std::span<std::uint8_t> data, std::vector<UniqueFd>& fds,
                                 Deadline deadline);

}  // namespace entrepot::os
