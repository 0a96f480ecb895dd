// Channel between keeper and daemon: a SOCK_SEQPACKET pair whose messages are one struct and at most one descriptor.
//
//   daemon -> keeper   Hold(tag) + fd
//                      Drop(tag)
//                      Shutdown: clean shutdown, end without starting a new daemon
//                      Upgrade(number) + fd of a program, answered by Ack(number): run it in place of the keeper when
//                      the daemon is gone; Upgrade without fd cancels
//                      HandOver: that was all before the upgrade; the keeper may end the daemon, which does not end
//                      by itself: if the keeper dies first, the daemon has the only copy of the store
//                      Ready: it serves clients; a daemon that dies earlier failed to start
//                      Restored: a daemon that started its keeper has sent all descriptors of its store
//   keeper -> daemon   Restore(tag) + fd for everything held, then Restored(keeper's pid): sent once, first
//                      LogDropped(number): how many lines of the keeper's log were dropped
//
// Neither side waits for the other: messages that the socket does not accept are queued here, in order, and sent when
// there is room. Sent messages lie in the receiver's socket. A keeper reads it to the end before it acts on the
// daemon's death, so "sent" is as good as held: only the keeper's own death loses it, and then the daemon is alive.
//
// End-of-file means that the other side has closed its end, which it does only by ending. Silence means nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>

#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace entrepot {

enum class DescriptorKind : std::uint32_t {
  kListenSocket = 1,
  kRegion = 2,       // number: RegionKind
  kSegment = 3,      // number: generation << 32 | segment
  kPinTable = 4,     // number: client
  kLiveness = 5,     // number: client
  kStoreLock = 6,    // os/store_lock.h
  kAddressLock = 7,  // address.h
};

struct DescriptorTag {
  DescriptorKind kind = DescriptorKind::kListenSocket;
  std::uint64_t number = 0;
  auto operator<=>(const DescriptorTag&) const = default;
};

[[nodiscard]] constexpr DescriptorTag segment_tag(std::uint32_t segment, std::uint32_t generation) {
  return {DescriptorKind::kSegment, (static_cast<std::uint64_t>(generation) << 32) | segment};
}

enum class KeeperMessageType : std::uint32_t {
  kHold = 1,
  kAck = 2,
  kDrop = 3,
  kShutdown = 4,
  kRestore = 5,
  kRestored = 6,
  kUpgrade = 7,
  kLogDropped = 8,
  kReady = 9,
  kHandOver = 10,
};

inline constexpr std::uint32_t kKeeperMagic = 0x3250'454bU;  // "KEP2"; a keeper or daemon with another magic is refused

// Exit code of a daemon that could not start or adopt its store and has logged why. Not 1, which sanitizers use too.
inline constexpr int kExitDaemonCannotStart = 3;

struct KeeperMessage {
  std::uint32_t magic = kKeeperMagic;
  KeeperMessageType type{};
  DescriptorKind kind{};
  std::uint32_t reserved = 0;
  std::uint64_t number = 0;

  [[nodiscard]] DescriptorTag tag() const { return {kind, number}; }
};
static_assert(sizeof(KeeperMessage) == 24);

[[nodiscard]] inline KeeperMessage keeper_message(KeeperMessageType type, const DescriptorTag& tag = {}) {
  KeeperMessage message;
  message.type = type;
  message.kind = tag.kind;
  message.number = tag.number;
  return message;
}

struct ReceivedMessage {
  KeeperMessage message;
  UniqueFd fd;  // invalid if none came
};

// One end of the channel. Guarded by the one thread of its process that uses it.
class KeeperChannel {
 public:
  KeeperChannel() = default;  // closed
  explicit KeeperChannel(UniqueFd socket);

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] bool is_open() const { return socket_.valid(); }
  void close();

  // Queues the message; flush() sends it. The first form borrows the descriptor, which must stay open while
  // is_unsent(); the second takes it.
  void post(const KeeperMessage& message, int fd = -1);
  void post(const KeeperMessage& message, UniqueFd fd);
  // Removes an unsent Hold; false if there is none, i.e. it was sent or never posted.
  [[nodiscard]] bool cancel_hold(const DescriptorTag& tag);
  // Removes unsent Upgrades, cancelling ones too; false if there are none.
  [[nodiscard]] bool cancel_upgrade();
  // Sends as much as there is room for. On error, nothing can be sent any more.
  [[nodiscard]] Status flush();
  [[nodiscard]] bool all_sent() const { return unsent_.empty(); }
  [[nodiscard]] bool is_unsent(const DescriptorTag& tag) const;  // whether its Hold is still queued
  [[nodiscard]] bool has_unsent_upgrade() const;
  // wants_write(): flush when the socket is writable. retry_at_ns(): flush at that time instead, because the system has
  // no room for more descriptors in flight.
  [[nodiscard]] bool wants_write() const { return !unsent_.empty() && retry_at_ns_ == 0; }
  [[nodiscard]] std::uint64_t retry_at_ns() const { return retry_at_ns_; }  // 0: no retry is scheduled

  // Does not wait. kTimeout: nothing pending. kStoreUnavailable: the other side closed its end, and everything it sent
  // was received. Other errors: the message is not of this version.
  [[nodiscard]] Result<ReceivedMessage> receive();
  [[nodiscard]] Result<ReceivedMessage> receive(os::Deadline deadline);  // waits until the deadline

 private:
  struct Unsent {
    KeeperMessage message;
    int fd = -1;
    UniqueFd own;  // fd, if it was taken
  };

  UniqueFd socket_;
  std::deque<Unsent> unsent_;
  std::uint64_t retry_at_ns_ = 0;
};

}  // namespace entrepot
