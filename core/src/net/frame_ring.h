// FrameRing: small frames through shared memory, beside the socket of a connection; see docs/formats/socket-protocol.md.
//
// A ring carries frames in one direction, from one producer to one consumer. While the consumer polls, neither side
// makes a system call. The socket remains: it wakes a consumer that sleeps, carries what does not fit into a ring, and
// tells either side that the other has exited.
//
//   consumer: asleep ──wake_up()──▶ polling ──sleep(): the ring is empty──▶ asleep
//               ▲                    │  ▲ └──sleep(): a frame has arrived──▶ polling
//               └──initially         ▼  └──a frame has arrived, or the time is up
//                                 blocked, for block()'s few milliseconds
//   producer: after push(), wake() wakes a consumer that is blocked, and returns true for exactly one frame of those
//   that find it asleep.
//
// Blocked, the consumer is woken sooner and at a lower cost than asleep, but does not notice that its peer has exited.
//
// Neither side trusts the other. Both keep their own positions privately, check the other's, and copy a frame before
// they look at it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/frame_reader.h"
#include "os/mapping.h"
#include "os/unique_fd.h"

namespace entrepot {

inline constexpr std::uint64_t kRingBytes = 64U << 10;  // of frames, in each direction
// Larger bodies use the socket: a system call costs little beside copying them.
inline constexpr std::uint64_t kMaxRingBodyBytes = 24U << 10;

enum ConsumerState : std::uint32_t {
  kAsleep = 0,   // it must be woken through the socket
  kPolling = 1,  // it will see a frame by itself
  kBlocked = 2,  // it waits for a change of this word (protocol 1.5)
};

// One direction's state in shared memory. Positions count all bytes ever written or read; frames start on multiples of
// eight and wrap around at the end of the data.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;   // by the producer
  alignas(64) std::atomic<std::uint64_t> read;      // by the consumer
  alignas(64) std::atomic<std::uint32_t> consumer;  // a ConsumerState
};
static_assert(sizeof(RingState) == 192);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Guarded by whoever sends.
class RingProducer {
 public:
  RingProducer(RingState* state, std::byte* data) : state_(state), data_(data) {}

  // Appends a frame. False: it has descriptors, it is too large, or the consumer has not read enough; use the socket.
  [[nodiscard]] bool push(const FrameHeader& header, std::span<const std::uint8_t> body);
  // Call after push(). True: the consumer sleeps, and the caller must wake it through the socket.
  [[nodiscard]] bool wake();

 private:
  void copy_in(std::uint64_t position, const void* from, std::size_t bytes);

  RingState* state_;
  std::byte* data_;
  std::uint64_t written_ = 0;
};

// Guarded by whoever receives.
class RingConsumer {
 public:
  RingConsumer(RingState* state, const std::byte* data) : state_(state), data_(data) {}

  [[nodiscard]] bool has_frames() const { return state_->written.load(std::memory_order_acquire) != read_; }
  // Appends what has arrived, until `frames` has `max_frames`. kInvalidArgument: the ring holds something other than
  // frames; those before it have been appended.
  [[nodiscard]] Status pop(std::vector<Frame>& frames, std::size_t max_frames);

  void wake_up() { state_->consumer.store(kPolling, std::memory_order_relaxed); }
  // Announces that this side is going to sleep. False: a frame has arrived meanwhile, and it must not.
  [[nodiscard]] bool sleep();
  // Waits for a frame, for `max_ns` (under a second) or until a signal arrives, and polls from then on. True: a frame
  // has arrived. Requires a producer that knows kBlocked.
  [[nodiscard]] bool block(std::uint32_t max_ns);

 private:
  void copy_out(std::uint64_t position, void* to, std::size_t bytes) const;

  RingState* state_;
  const std::byte* data_;
  std::uint64_t read_ = 0;
};

// The memory of a connection's two rings, as one side sees it.
class FrameRings {
 public:
  // The daemon creates the memory, with all its pages, so that a lack of memory is an error here and not a signal
  // later; `fd` is for the client.
  struct Created {
    std::unique_ptr<FrameRings> rings;
    UniqueFd fd;
  };
  [[nodiscard]] static Result<Created> create();
  // For the client. kInvalidArgument: not a sealed memfd of the right size.
  [[nodiscard]] static Result<std::unique_ptr<FrameRings>> attach(const UniqueFd& fd);

  [[nodiscard]] static std::uint64_t bytes();  // of memory

  // From client to daemon, and back. Each side uses one end of each.
  RingProducer request_producer;
  RingConsumer request_consumer;
  RingProducer response_producer;
  RingConsumer response_consumer;

 private:
  explicit FrameRings(os::Mapping memory);

  os::Mapping memory_;
};

}  // namespace entrepot
