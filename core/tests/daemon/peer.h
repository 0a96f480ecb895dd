// The client's end of a connection in the same process, and an event loop that a test turns by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "daemon/connections.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot::testing {

// A loop whose turns do not wait for long, so that a test can make one without knowing whether anything happens.
class TestLoop : public EventLoop {
 public:
  TestLoop() : EventLoop(os::Poller::create().take()) {
    soon_ = timer([this](std::uint64_t) { arm(); });
    arm();
  }

 private:
  void arm() { soon_.arm(os::monotonic_ns() + 1'000'000); }

  Timer soon_;
};

class Peer {
 public:
  explicit Peer(UniqueFd socket) : frames_(std::move(socket)) {
    EXPECT_TRUE(os::set_nonblocking(frames_.fd(), true).is_ok());
  }
  // A connection to this process.
  [[nodiscard]] static std::pair<Peer, Connection*> connect(Connections& connections) {
    auto pair = os::socket_pair(os::SocketKind::kStream).take();
    EXPECT_TRUE(os::set_nonblocking(pair.second.get(), true).is_ok());
    const os::PeerCredentials credentials{static_cast<std::uint32_t>(os::current_pid()), os::current_uid(), 0};
    Connection* connection = connections.add(std::move(pair.second), credentials);
    EXPECT_NE(connection, nullptr);
    return {Peer(std::move(pair.first)), connection};
  }

  void send(MessageType type, std::uint64_t request, std::vector<std::uint8_t> body = {},
            std::vector<UniqueFd> fds = {}) {
    EXPECT_TRUE(frames_.send(type, request, std::move(body), std::move(fds)).is_ok());
    EXPECT_FALSE(frames_.wants_write()) << "the socket is full";
  }
  void send_bytes(std::span<const std::uint8_t> bytes) {
    const auto sent = os::send_some(frames_.fd(), bytes);
    EXPECT_TRUE(sent.is_ok() && sent->bytes == bytes.size());
  }
  // Frames that have arrived. Notes whether the other side has closed the connection.
  [[nodiscard]] std::vector<Frame> receive() {
    FrameSocket::Incoming incoming = frames_.receive();
    is_closed = incoming.status.code() == Code::kStoreUnavailable;
    return std::move(incoming.frames);
  }

  bool is_closed = false;

 private:
  FrameSocket frames_;
};

// The error that a frame carries; success if it is a reply.
[[nodiscard]] inline Status status_of(const Frame& frame) {
  if (frame.header.type == MessageType::kReply) return Status::ok();
  ErrorBody body;
  EXPECT_TRUE(frame.header.type == MessageType::kError && from_wire(frame.body, body));
  return Status(body.code, body.message, body.retryable != 0);
}

}  // namespace entrepot::testing
