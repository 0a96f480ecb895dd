// The channel between keeper and daemon: a SOCK_SEQPACKET pair whose messages are one struct and at most one
// descriptor.
//
//   daemon -> keeper   Hold(tag) + fd, answered by Ack;  Drop(tag);  Goodbye (a clean stop: end without a new daemon)
//                      Upgrade + fd of a program, answered by Ack: to be run in the keeper's place when the daemon is
//                      gone
//   keeper -> daemon   Restore(tag) + fd for all that is held, then Restored(keeper's pid): sent once, first thing
//
// End-of-file means that the other died.
#pragma once

#include <compare>
#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/clock.h"

namespace entrepot {

enum class HeldKind : std::uint32_t {
  kListenSocket = 1,
  kRegion = 2,    // number: RegionKind
  kSegment = 3,   // number: generation << 32 | segment
  kPinTable = 4,  // number: client
  kLiveness = 5,  // number: client
};

struct HeldTag {
  HeldKind kind = HeldKind::kListenSocket;
  std::uint64_t number = 0;
  auto operator<=>(const HeldTag&) const = default;
};

[[nodiscard]] constexpr HeldTag segment_tag(std::uint32_t segment, std::uint32_t generation) {
  return {HeldKind::kSegment, (static_cast<std::uint64_t>(generation) << 32) | segment};
}

enum class KeeperVerb : std::uint32_t {
  kHold = 1,
  kAck = 2,
  kDrop = 3,
  kGoodbye = 4,
  kRestore = 5,
  kRestored = 6,
  kUpgrade = 7,
};

inline constexpr std::uint32_t kKeeperMagic = 0x3150'454bU;  // "KEP1": keeper and daemon of another build refuse

struct KeeperMessage {
  std::uint32_t magic = kKeeperMagic;
  KeeperVerb verb{};
  HeldKind kind{};
  std::uint32_t reserved = 0;
  std::uint64_t number = 0;

  [[nodiscard]] HeldTag tag() const { return {kind, number}; }
};
static_assert(sizeof(KeeperMessage) == 24);

[[nodiscard]] inline KeeperMessage keeper_message(KeeperVerb verb, const HeldTag& tag = {}) {
  KeeperMessage message;
  message.verb = verb;
  message.kind = tag.kind;
  message.number = tag.number;
  return message;
}

// kStoreUnavailable: the other side is gone. kTimeout at the deadline.
[[nodiscard]] Status send_keeper_message(int socket, const KeeperMessage& message, int fd, os::Deadline deadline);

struct ReceivedMessage {
  KeeperMessage message;
  UniqueFd fd;  // invalid if none came
};
[[nodiscard]] Result<ReceivedMessage> receive_keeper_message(int socket, os::Deadline deadline);

}  // namespace entrepot
