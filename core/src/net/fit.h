// Compatibility of two builds, checked on connect: versions decide; stamps catch format changes without a new version.
#pragma once

#include <cstdint>

#include "net/protocol.h"

namespace entrepot {

// Result of checking a peer's Hello or HelloReply.
enum class Fit : std::uint8_t {
  kFits = 0,
  kOtherVersion = 1,  // another version of the protocol or the layout
  kOtherBuild = 2,    // versions match, but the format definitions differ
};
template <class Greeting>
[[nodiscard]] constexpr Fit fit_of(const Greeting& peer) {
  const int apart = static_cast<int>(peer.protocol_minor) - static_cast<int>(kProtocolMinor);
  if (peer.protocol_major != kProtocolMajor || apart < -1 || apart > 1) return Fit::kOtherVersion;
  if (peer.layout_version != kLayoutVersion) return Fit::kOtherVersion;
  if (AbiStamp::layout(peer.abi_stamp) != AbiStamp::layout(kAbiStamp)) return Fit::kOtherBuild;
  // Another minor version may legitimately have different messages.
  const bool same_messages = AbiStamp::protocol(peer.abi_stamp) == AbiStamp::protocol(kAbiStamp);
  return apart != 0 || same_messages ? Fit::kFits : Fit::kOtherBuild;
}

}  // namespace entrepot
