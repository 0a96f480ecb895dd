// What two builds that greet each other make of it: versions decide, stamps catch what nobody raised a version for.
#pragma once

#include <cstdint>

#include "net/protocol.h"

namespace entrepot {

// Whether a peer that greets with a Hello or a HelloReply is served, and if not, why.
enum class Fit : std::uint8_t {
  kFits = 0,
  kOtherVersion = 1,  // of the protocol or the layout
  kOtherBuild = 2,    // the versions say that it fits, the definitions that it was built from differ
};
template <class Greeting>
[[nodiscard]] constexpr Fit fit_of(const Greeting& peer) {
  const int apart = static_cast<int>(peer.protocol_minor) - static_cast<int>(kProtocolMinor);
  if (peer.protocol_major != kProtocolMajor || apart < -1 || apart > 1) return Fit::kOtherVersion;
  if (peer.layout_version != kLayoutVersion) return Fit::kOtherVersion;
  if (AbiStamp::layout(peer.abi_stamp) != AbiStamp::layout(kAbiStamp)) return Fit::kOtherBuild;
  // Another minor version has other messages by right.
  const bool same_messages = AbiStamp::protocol(peer.abi_stamp) == AbiStamp::protocol(kAbiStamp);
  return apart != 0 || same_messages ? Fit::kFits : Fit::kOtherBuild;
}

}  // namespace entrepot
