#include "daemon/keeper_channel.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/events.h"
#include "os/socket.h"

namespace entrepot {

Status send_keeper_message(int socket, const KeeperMessage& message, int fd, os::Deadline deadline) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&message);
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  return os::send_all(socket, std::span(bytes, sizeof(message)), fds, deadline);
}

Result<ReceivedMessage> receive_keeper_message(int socket, os::Deadline deadline) {
  ASSIGN_OR_RETURN(const bool readable, os::wait_readable(socket, deadline));
  if (!readable) return Status(Code::kTimeout, "no message between keeper and daemon within the time", true);
  ReceivedMessage received;
  std::vector<UniqueFd> fds;
  auto* bytes = reinterpret_cast<std::uint8_t*>(&received.message);
  ASSIGN_OR_RETURN(const os::IoResult result, os::receive_some(socket, std::span(bytes, sizeof(KeeperMessage)), fds));
  if (result.closed) return Status(Code::kStoreUnavailable, "the other of keeper and daemon is gone", true);
  if (result.would_block) return Status(Code::kTimeout, "no message between keeper and daemon yet", true);
  if (result.bytes != sizeof(KeeperMessage) || received.message.magic != kKeeperMagic || fds.size() > 1) {
    return Status(Code::kVersionMismatch,
                  concat("a message of ", result.bytes, " bytes between keeper and daemon is not of this version"));
  }
  if (!fds.empty()) received.fd = std::move(fds.front());
  return received;
}

}  // namespace entrepot
