// MessageReader: cuts what a Plasma client sends into messages, whatever the pieces it arrives in.
//
//   header ──24 bytes──▶ body ──all of it──▶ message ready ──take()──▶ header
//     ▲                                                        └─ if a descriptor follows ──▶ descriptor ─┐
//     └──────────────────────────────── one byte with a descriptor, take_descriptor() ────────────────────┘
//
// A header of another version or with an impossible length ends the stream for good; that of Entrepot's own protocol,
// which has the same length, is recognized. Memory grows with what arrives, not with what a header promises.
//
// Short messages are copied from the socket first, and taken from it when they have been answered. Taking bytes from a
// socket makes room for its sender, so the kernel wakes the sender, which sleeps there for the answer and finds none: on
// another CPU, that takes longer than all the work for a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"
#include "plasma/messages.h"

namespace entrepot::plasma {

struct Message {
  MessageType type{};
  std::vector<std::uint8_t> body;
};

// Guarded by the front end's thread.
class MessageReader {
 public:
  explicit MessageReader(std::uint64_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Reads once from the socket, and leaves a short message in it. False: it has ended. kInvalidArgument: what arrived is
  // not Plasma's protocol.
  [[nodiscard]] Result<bool> read(int socket);
  // Takes from the socket what read() has left there, as the next read() does: also before the socket is closed, because
  // its peer would be told that the connection was reset.
  [[nodiscard]] Status take_left(int socket);
  // The same as read() with bytes that were read already.
  [[nodiscard]] Status feed(std::span<const std::uint8_t> bytes, std::vector<UniqueFd> descriptors);

  [[nodiscard]] std::optional<Message> take();
  // Why nothing can be taken from bytes that have arrived: kInvalidArgument if they are not Plasma's protocol.
  [[nodiscard]] Status parse();
  // The next byte of the stream comes with a descriptor and is no part of a message. kInvalidArgument: it has arrived
  // without one; if it arrives later, feed() says so.
  [[nodiscard]] Status expect_descriptor();
  [[nodiscard]] std::optional<UniqueFd> take_descriptor();
  // The number of the request that began the stream, if that is in Entrepot's own protocol.
  [[nodiscard]] std::optional<std::uint64_t> entrepot_request() const { return entrepot_request_; }
  [[nodiscard]] std::size_t buffered_bytes() const { return unread_.size() - consumed_ + body_.size(); }

 private:
  [[nodiscard]] bool has_message() const {
    return header_ && body_.size() == static_cast<std::size_t>(header_->length);
  }

  const std::uint64_t max_body_bytes_;
  std::vector<std::uint8_t> unread_;  // from consumed_ on
  std::size_t consumed_ = 0;
  std::size_t left_bytes_ = 0;      // were read, and are still in the socket
  std::optional<Header> header_;    // of the message whose body is being read
  std::vector<std::uint8_t> body_;  // as far as it has arrived
  bool expects_descriptor_ = false;
  std::optional<std::uint64_t> entrepot_request_;
  std::vector<UniqueFd> descriptors_;
};

}  // namespace entrepot::plasma
