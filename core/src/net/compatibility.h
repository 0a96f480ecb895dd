// Compatibility of two builds, checked on connect: versions decide; stamps catch format changes without a new version.
#pragma once

#include <cstdint>

#include "net/protocol.h"

namespace entrepot {

// Result of checking a peer's Hello or HelloReply.
enum class Compatibility : std::uint8_t {
  kCompatible = 0,
  kOtherVersion = 1,  // another version of the protocol or the layout
  kOtherBuild = 2,    // versions match, but the format definitions differ
};
template <class Message>
[[nodiscard]] constexpr Compatibility check_compatibility(const Message& peer) {
  const int minor_difference = static_cast<int>(peer.protocol_minor) - static_cast<int>(kProtocolMinor);
  if (peer.protocol_major != kProtocolMajor || minor_difference < -1 || minor_difference > 1)
    return Compatibility::kOtherVersion;
  if (peer.layout_version != kLayoutVersion) return Compatibility::kOtherVersion;
  if (AbiStamp::layout(peer.abi_stamp) != AbiStamp::layout(kAbiStamp)) return Compatibility::kOtherBuild;
  // Another minor version may legitimately have different messages.
  const bool same_messages = AbiStamp::protocol(peer.abi_stamp) == AbiStamp::protocol(kAbiStamp);
  return minor_difference != 0 || same_messages ? Compatibility::kCompatible : Compatibility::kOtherBuild;
}

}  // namespace entrepot
