#include "daemon/keeper_channel.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/error.h"
#include "os/events.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr int kSendRoom = 4 << 20;  // bytes; a message takes about 800 in the kernel
// Retry interval when the system has no room for descriptors, which it does not signal
constexpr std::uint64_t kRetryNs = 100'000'000;

}  // namespace

KeeperChannel::KeeperChannel(UniqueFd socket) : socket_(std::move(socket)) {
  if (socket_.valid()) os::request_send_buffer(socket_.get(), kSendRoom);
}

void KeeperChannel::close() {
  unsent_.clear();
  retry_at_ns_ = 0;
  socket_.reset();
}

void KeeperChannel::post(const KeeperMessage& message, int fd) { unsent_.push_back({message, fd, UniqueFd()}); }

void KeeperChannel::post(const KeeperMessage& message, UniqueFd fd) {
  const int number = fd.get();
  unsent_.push_back({message, number, std::move(fd)});
}

bool KeeperChannel::cancel_hold(const DescriptorTag& tag) {
  const auto match = std::find_if(unsent_.begin(), unsent_.end(), [&](const Unsent& unsent) {
    return unsent.message.type == KeeperMessageType::kHold && unsent.message.tag() == tag;
  });
  if (match == unsent_.end()) return false;
  unsent_.erase(match);
  return true;
}

bool KeeperChannel::is_unsent(const DescriptorTag& tag) const {
  return std::any_of(unsent_.begin(), unsent_.end(), [&](const Unsent& unsent) {
    return unsent.message.type == KeeperMessageType::kHold && unsent.message.tag() == tag;
  });
}

bool KeeperChannel::cancel_upgrade() {
  return std::erase_if(unsent_,
                       [](const Unsent& unsent) { return unsent.message.type == KeeperMessageType::kUpgrade; }) > 0;
}

bool KeeperChannel::has_unsent_upgrade() const {
  return std::any_of(unsent_.begin(), unsent_.end(),
                     [](const Unsent& unsent) { return unsent.message.type == KeeperMessageType::kUpgrade; });
}

Status KeeperChannel::flush() {
  retry_at_ns_ = 0;
  while (!unsent_.empty()) {
    const Unsent& next = unsent_.front();
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&next.message);
    const std::span<const int> fds(&next.fd, next.fd >= 0 ? 1 : 0);
    const Result<os::IoResult> sent = os::send_some(socket_.get(), std::span(bytes, sizeof(KeeperMessage)), fds);
    if (sent.code() == Code::kStoreFull) {
      retry_at_ns_ = os::monotonic_ns() + kRetryNs;
      return Status::ok();
    }
    if (!sent.is_ok()) return sent.status();
    if (sent->would_block) return Status::ok();
    unsent_.pop_front();
  }
  return Status::ok();
}

Result<ReceivedMessage> KeeperChannel::receive() { return receive(os::Deadline::after_ms(0)); }

Result<ReceivedMessage> KeeperChannel::receive(os::Deadline deadline) {
  ASSIGN_OR_RETURN(const bool readable, os::wait_readable(socket_.get(), deadline));
  if (!readable) return Status(Code::kTimeout, "no message between keeper and daemon yet", true);
  ReceivedMessage received;
  std::vector<UniqueFd> fds;
  auto* raw = reinterpret_cast<std::uint8_t*>(&received.message);
  const std::span bytes(raw, sizeof(KeeperMessage));
  Result<os::IoResult> result = os::receive_some(socket_.get(), bytes, fds);
  // A peer that ended before it had read everything causes one ECONNRESET before its last messages can be read.
  if (result.code() == Code::kStoreUnavailable) result = os::receive_some(socket_.get(), bytes, fds);
  if (!result.is_ok()) return result.status();
  if (result->closed) return Status(Code::kStoreUnavailable, "peer process exited", true);
  if (result->would_block) return Status(Code::kTimeout, "no message between keeper and daemon yet", true);
  if (result->fds_lost) return os::errno_status(EMFILE, "receiving a descriptor from the peer process");
  if (result->bytes != sizeof(KeeperMessage) || received.message.magic != kKeeperMagic || fds.size() > 1) {
    return Status(Code::kVersionMismatch, concat("a message of ", result->bytes,
                                                 " bytes between keeper and daemon does not match this version"));
  }
  if (!fds.empty()) received.fd = std::move(fds.front());
  return received;
}

}  // namespace entrepot
