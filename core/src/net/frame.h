// Frame header and message types of the local socket protocol; see net/protocol.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/wire.h"
#include "entrepot/codes.h"

namespace entrepot {

inline constexpr std::uint16_t kProtocolMajor = 1;
inline constexpr std::uint16_t kProtocolMinor = 9;          // peers one minor version older or newer are served
inline constexpr std::uint32_t kFrameMagic = 0x3154'5045U;  // "EPT1"
inline constexpr std::uint32_t kMaxBodyBytes = 64U << 20;
inline constexpr std::uint32_t kMaxFds = 16;
inline constexpr std::uint32_t kMaxBatch = 1U << 16;  // objects in one request

enum class MessageType : std::uint16_t {
  kReply = 1,
  kError = 2,
  kHello = 10,
  kLease = 11,
  kUnlease = 12,
  kSegment = 13,
  kSeal = 14,
  kLookup = 15,
  kDelete = 16,
  kEvict = 18,
  kDeleteGenerations = 19,  // since 1.8
  kReleased = 17,           // no answer: pins were removed while memory_wanted was set
  kOpenSession = 20,
  kRemoveSession = 21,
  kListSessions = 22,
  kCloseSession = 23,
  kDefineSet = 24,
  kListSets = 25,
  kHint = 26,
  kConsumed = 27,
  kRemoveUnused = 28,  // since 1.1
  kBindName = 30,
  kResolveName = 31,
  kUnbindName = 32,
  kList = 33,
  kInfo = 34,
  kStatus = 40,
  kWaitProvisioned = 41,
  kShutdown = 42,
  kUpgrade = 44,
  kGrowPins = 45,       // since 1.2
  kReserve = 46,        // since 1.3
  kReservation = 47,    // since 1.3
  kOpenRings = 48,      // since 1.4
  kRingFilled = 49,     // since 1.4; no answer, in both directions: a ring has frames, and its consumer slept
  kLeaseIsolated = 50,  // since 1.5
  kSocketFilled = 51,   // since 1.5; from the daemon, through a ring; no answer: the socket has a frame
  kOpenStream = 52,     // since 1.6, as all about streams
  kRemoveStream = 53,
  kOpenStreamWriter = 54,
  kCloseStreamWriter = 55,
  kAppendChunk = 56,
  kWithdrawChunk = 57,
  kOpenStreamReader = 58,
  kCloseStreamReader = 59,
  kNextChunk = 60,
  kChunkDone = 61,
  kStreamState = 62,
  kPutChunk = 63,      // since 1.7
  kFork = 43,          // sent by the parent: a second registration, for a forked child
  kServeGateway = 90,  // since 1.7, as all about the gateway
  kCallGateway = 91,
  kNextCalls = 92,
  kAnswerCall = 93,
};

struct FrameHeader {
  std::uint32_t magic;
  MessageType type;
  std::uint16_t flags;  // 0
  std::uint32_t body_bytes;
  std::uint32_t fd_count;
  std::uint64_t request;
};
static_assert(sizeof(FrameHeader) == 24);

[[nodiscard]] constexpr FrameHeader frame_header(MessageType type, std::uint64_t request, std::size_t body_bytes,
                                                 std::size_t fds = 0) {
  return {kFrameMagic, type, 0, static_cast<std::uint32_t>(body_bytes), static_cast<std::uint32_t>(fds), request};
}

struct ErrorBody {
  Code code{};
  std::uint8_t retryable = 0;
  std::string message;
  template <class V>
  void fields(V& v) {
    v(code, retryable, message);
  }
};

struct Empty {
  std::uint8_t none = 0;
  template <class V>
  void fields(V& v) {
    v(none);
  }
};

}  // namespace entrepot
