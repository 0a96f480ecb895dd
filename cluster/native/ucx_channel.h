// One connection over UCX: bytes sent from and received into given memory, as through a blocking socket.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace entrepot::ucx {

using ConstRange = std::span<const std::byte>;
using Range = std::span<std::byte>;

// What each call returns instead of an errno: 0, or
//   EAGAIN      nothing has moved for the channel's time limit
//   ECONNRESET  the connection has ended
//   EBADMSG     the peer has sent a message longer than kMaxMessage
constexpr std::uint64_t kMaxMessage = std::uint64_t{96} << 20;

// A UCX worker with one endpoint. What is sent by one call is one UCX message. A message as long as what is being
// received lands there directly; others, such as headers, go through a buffer.
//
//   opened ──connect──▶ connected ──the socket ends, an error, a time limit, interrupt, close──▶ ended
//
// UCX itself would say late or never that a peer has gone. So each channel has a TCP connection beside it, over which
// both ends have introduced themselves: the channel has ended when that has.
//
// Thread-safe; one thread sends and one receives at a time.
class Channel {
 public:
  // `socket`: the connection beside it, which the caller keeps open; `limit_ms`: how long to wait until something moves.
  // Throws std::runtime_error with UCX's reason.
  Channel(int socket, std::uint32_t limit_ms);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Where the peer reaches this worker; it changes hands over the socket.
  [[nodiscard]] const std::string& address() const { return address_; }

  // The tags are secrets of both ends, one for each direction: messages with others are never looked at.
  // Throws std::runtime_error with UCX's reason.
  void connect(const std::string& address, std::uint64_t send_tag, std::uint64_t receive_tag);

  [[nodiscard]] int send(std::span<const ConstRange> ranges);
  // Until all ranges are full.
  [[nodiscard]] int receive(std::span<const Range> ranges);
  // Until a message is there: 0; ETIMEDOUT: none has come.
  [[nodiscard]] int wait_readable(std::uint32_t timeout_ms);
  // Until the peer has what was sent: at most `timeout_ms`.
  void flush(std::uint32_t timeout_ms);
  // Whether nothing is being sent.
  [[nodiscard]] bool has_room();
  // Whether the channel is open, and nothing has arrived that has not been received.
  [[nodiscard]] bool is_quiet();
  // Ends the channel at once, from any thread.
  void interrupt();
  // Ends the channel, and gives its resources back. Idempotent; no other call may be made after it.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Moves data until `is_done()`, for at most `limit_ms` without any progress.
  template <class IsDone>
  [[nodiscard]] int drive(Lock& lock, std::uint32_t limit_ms, const IsDone& is_done);
  // Waits for `request` of UCX.
  [[nodiscard]] int finish(Lock& lock, ucs_status_ptr_t request, std::uint32_t limit_ms);
  // Sleeps until there may be something to do; the lock is released meanwhile. Returns whether the socket is as it was.
  [[nodiscard]] bool sleep(Lock& lock, std::uint32_t timeout_ms, bool socket_open);
  [[nodiscard]] int receive_message(Lock& lock, ucp_tag_message_h message, std::uint64_t length,
                                    std::span<const Range> ranges);
  // Takes the next message's handle, or returns null.
  [[nodiscard]] ucp_tag_message_h probe(bool remove, std::uint64_t& length);
  [[nodiscard]] bool socket_ended() const;
  int end(int error);

  const int socket_;
  const std::uint32_t limit_ms_;
  std::string address_;

  std::mutex mutex_;  // guards what follows
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int event_fd_ = -1;  // of the worker
  std::uint64_t send_tag_ = 0;
  std::uint64_t receive_tag_ = 0;
  std::uint32_t sleeping_ = 0;  // threads
  bool sending_ = false;
  bool ended_ = false;
  std::vector<std::byte> stash_;  // a message that has been received in part
  std::size_t stash_used_ = 0;    // bytes of it that were handed out
};

}  // namespace entrepot::ucx
