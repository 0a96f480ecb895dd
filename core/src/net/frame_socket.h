// FrameSocket: frames over a non-blocking unix stream socket, for an event loop. Everything is bounded: a peer that
// sends too much at once, or does not read its answers, is an error that closes its connection and nobody else's.
//
//   open ──end of file, error, bad frame──▶ broken (for good: the owner closes it)
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "net/frame_reader.h"
#include "net/protocol.h"

namespace entrepot {

inline constexpr std::size_t kMaxUnsentBytes = 128U << 20;  // of answers that a client has not read

// Guarded by its event loop's thread.
class FrameSocket {
 public:
  explicit FrameSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  // What has come, at most kFramesPerRead frames, so that one busy peer does not starve the others: then `more` is true
  // and the next call gives the rest without waiting for the socket. kStoreUnavailable: the peer closed;
  // kInvalidArgument: what it sent is no frame of this protocol. Frames that were whole before a failure are given
  // first.
  struct Incoming {
    std::vector<Frame> frames;
    bool more = false;
    Status status;
  };
  [[nodiscard]] Incoming receive();

  // Queues a frame and sends what the socket takes. Descriptors are duplicates of the caller's, closed once sent.
  // kStoreFull: the peer has not read kMaxUnsentBytes of answers.
  [[nodiscard]] Status send(MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                            std::vector<UniqueFd> fds = {});
  // Sends what the socket takes now.
  [[nodiscard]] Status flush();
  [[nodiscard]] bool wants_write() const { return !unsent_.empty(); }
  // From now on a descriptor that comes is an error, and those whose frames did not come are closed. One that waited
  // here could be the peer's own end of the connection, which then never ends.
  void refuse_descriptors() { reader_.refuse_descriptors(); }
  // Memory that waits for its peer: requests that are not whole, answers that are not read.
  [[nodiscard]] std::size_t held_bytes() const { return reader_.held_bytes() + unsent_bytes_; }

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  static constexpr std::size_t kFramesPerRead = 64;

  struct Unsent {
    std::vector<std::uint8_t> bytes;
    std::size_t sent = 0;
    std::vector<UniqueFd> fds;  // go with the first byte
  };

  UniqueFd socket_;
  FrameReader reader_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
};

// A frame's bytes: header and body.
[[nodiscard]] std::vector<std::uint8_t> frame_bytes(MessageType type, std::uint64_t request,
                                                    std::span<const std::uint8_t> body, std::size_t fds);

}  // namespace entrepot
