// FrameSocket: frames over a non-blocking Unix stream socket, for an event loop. Everything is bounded: if a peer sends
// too much at once or does not read its answers, its connection is closed, and no other.
//
//   open ──end of file, error, bad frame──▶ broken (for good: the owner closes it)
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/frame_reader.h"
#include "net/protocol.h"
#include "os/unique_fd.h"

namespace entrepot {

inline constexpr std::size_t kMaxUnsentBytes = 128U << 20;  // limit of answers that a client has not read

// Guarded by the event loop's thread.
class FrameSocket {
 public:
  explicit FrameSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  // Returns the frames received, at most kFramesPerRead, so that one busy peer does not starve the others; if there are
  // more, `more` is true and the next call returns them without waiting for the socket. kStoreUnavailable: the peer
  // closed the connection; kInvalidArgument: it sent something other than a frame of this protocol. Frames that were
  // complete before a failure are returned first.
  struct Incoming {
    std::vector<Frame> frames;
    bool more = false;
    Status status;
  };
  [[nodiscard]] Incoming receive();

  // Queues a frame and sends what the socket accepts. The descriptors are duplicates of the caller's, and are closed
  // once sent. kStoreFull: the peer has not read kMaxUnsentBytes of answers.
  [[nodiscard]] Status send(MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                            std::vector<UniqueFd> fds = {});
  // Sends what the socket accepts now.
  [[nodiscard]] Status flush();
  [[nodiscard]] bool wants_write() const { return !unsent_.empty(); }
  // From now on, a received descriptor is an error; descriptors whose frames are still incomplete are closed. One of
  // them could be the peer's own end of this connection, which then would never end.
  void refuse_descriptors() { reader_.refuse_descriptors(); }
  // Memory held for the peer: incomplete requests and unread answers.
  [[nodiscard]] std::size_t buffered_bytes() const { return reader_.buffered_bytes() + unsent_bytes_; }

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  static constexpr std::size_t kFramesPerRead = 64;

  struct Unsent {
    std::vector<std::uint8_t> bytes;
    std::size_t sent = 0;
    std::vector<UniqueFd> fds;  // sent with the first byte
  };

  UniqueFd socket_;
  FrameReader reader_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
};

// Serializes a frame: header and body.
[[nodiscard]] std::vector<std::uint8_t> frame_bytes(MessageType type, std::uint64_t request,
                                                    std::span<const std::uint8_t> body, std::size_t fds);

}  // namespace entrepot
