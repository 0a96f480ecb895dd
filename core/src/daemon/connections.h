// Connections: the sockets of clients. Frames in, bytes out, limits on both, and closing.
//
//   connection: accepted ──Hello──▶ ready ──end-of-file, bad frame, client reconnected elsewhere──▶ closed
//                   └──anything but a valid Hello, or nothing for ten seconds──▶ closed, after an Error
//
// A connection that fails while it is in use is only marked as closing, and closed once nobody uses it: after its event,
// or in the same or next turn of the event loop. Nothing is read from it or sent to it meanwhile.
//
// rings of a connection (net/frame_ring.h): none ──open_rings()──▶ unused ──RingFilled from the client──▶ polled
//                                                                     RingFilled from the client ▲ │
//                                                                                                │ ▼
//                                                                          asleep ◀──the thread is going to sleep
//
// Until the client has sent the first RingFilled, nobody knows whether it has them, and responses use the socket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/frame_ring.h"
#include "net/frame_socket.h"
#include "net/protocol.h"
#include "os/socket.h"
#include "os/unique_fd.h"
#include "shm/memory_budget.h"

namespace entrepot {

// Limits on what clients may make the daemon remember. A connection below its fair share is served whatever the others
// hold. The limit on all incomplete requests and unread answers is half of the store's size, within these bounds.
inline constexpr std::uint64_t kMinBufferLimit = kMaxBodyBytes + (16U << 20);  // any one request, and small ones
inline constexpr std::uint64_t kMaxBufferLimit = 256U << 20;
inline constexpr std::uint64_t kFairBufferBytes = 1U << 20;  // per connection, always allowed
inline constexpr std::uint64_t kWaiterCost = 64;             // per waiting request, plus 1 for each of its IDs
inline constexpr std::uint64_t kMaxWaiting = 1U << 19;       // per connection
inline constexpr std::uint64_t kMaxWaitingOfAll = 1U << 21;  // all connections
inline constexpr std::uint64_t kFairWaiting = 1U << 14;      // per connection, always allowed
inline constexpr std::uint64_t kHelloNs = 10'000'000'000;    // for a connection to say Hello

// Guarded by the daemon's thread; changed only by Connections.
class Connection {
 public:
  Connection(std::uint64_t owner, UniqueFd socket, const os::PeerCredentials& peer, std::uint64_t accepted_ns)
      : owner_(owner), peer_(peer), accepted_ns_(accepted_ns), frames_(std::move(socket)) {}

  // Never reused; identifies the connection's waiting requests.
  [[nodiscard]] std::uint64_t owner() const { return owner_; }
  [[nodiscard]] const os::PeerCredentials& peer() const { return peer_; }
  [[nodiscard]] const std::optional<std::uint32_t>& client() const { return client_; }  // none before Hello

 private:
  friend class Connections;

  std::uint64_t owner_;
  os::PeerCredentials peer_;
  std::uint64_t accepted_ns_;
  FrameSocket frames_;
  EventLoop::Watch watch_;  // of the socket; after it, so that it ends before the socket is closed
  std::optional<std::uint32_t> client_;
  bool is_closing_ = false;
  bool watches_write_ = false;
  std::unique_ptr<FrameRings> rings_;  // null until the client asks for them
  bool has_used_rings_ = false;        // the client has
  bool is_polled_ = false;             // its ring of requests is
  std::uint64_t waiting_ = 0;          // cost of its waiting requests
  std::uint64_t charged_bytes_ = 0;    // bytes of its buffers that are charged to the budget
};

// Guarded by the daemon's thread.
class Connections {
 public:
  // The handler may close any connection, this one included.
  using FrameHandler = std::function<void(Connection&, Frame&)>;
  using ClosedHandler = std::function<void(std::uint64_t owner, std::uint32_t client)>;

  // Both must outlive it.
  Connections(EventLoop& loop, MemoryBudget& budget, std::uint64_t hello_ns = kHelloNs);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void on_frame(FrameHandler handler) { on_frame_ = std::move(handler); }
  // Called when a connection that had a client is closed; it cannot be found any more.
  void on_closed(ClosedHandler handler) { on_closed_ = std::move(handler); }

  Connection* add(UniqueFd socket, const os::PeerCredentials& peer);  // null: it could not be watched
  // Says whose connection it is, and ends the time for its Hello. A client has one connection at most.
  void identify(Connection& connection, std::uint32_t client);
  // From now on, a frame with descriptors is an error.
  void refuse_descriptors(Connection& connection) { connection.frames_.refuse_descriptors(); }
  void close(std::uint64_t owner);
  void close_of_client(std::uint32_t client);  // if it has one
  void mark_closing(Connection& connection);

  [[nodiscard]] Connection* find(std::uint64_t owner);
  [[nodiscard]] bool is_empty() const { return connections_.empty(); }

  // Nothing is sent to a connection that has ended.
  template <class Reply>
  void reply(std::uint64_t owner, std::uint64_t request, const Reply& body, std::vector<UniqueFd> fds = {}) {
    send(owner, MessageType::kReply, request, to_wire(body), std::move(fds));
  }
  void refuse(std::uint64_t owner, std::uint64_t request, const Status& status);

  // Charges a request that may wait, until end_wait() or the end of its connection. kStoreFull: too many are waiting.
  [[nodiscard]] Status begin_wait(Connection& connection, std::uint64_t cost);
  void end_wait(std::uint64_t owner, std::uint64_t cost);

  // Creates rings and answers request `number` with them; or refuses it.
  void open_rings(Connection& connection, std::uint64_t number);

  // Handles requests that arrived in rings. Call after each turn's events.
  void read_rings();
  // Continues with connections that sent more at once than is read in one go. Call after each turn's events.
  void read_more();

 private:
  void on_ready(Connection& connection, const os::Ready& ready);
  void read_from(Connection& connection);  // and closes it if it is marked; do not use it afterwards
  void handle_incoming(Connection& connection);
  // Handles frames of a connection until it is closed or marked; true if that did not happen.
  bool handle_frames(Connection& connection, std::vector<Frame>& frames);
  void refuse_malformed(Connection& connection, const Status& why);
  void poll_ring(Connection& connection);
  [[nodiscard]] bool rings_have_frames() const;
  [[nodiscard]] bool let_rings_sleep();
  void send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
            std::vector<UniqueFd> fds);
  void notify_of_socket(Connection& connection);
  void update_watch(Connection& connection);
  void charge_buffers(Connection& connection);  // charges their current size to the budget
  // kStoreFull if this connection, or all of them, hold too much that their peers have not completed or read.
  [[nodiscard]] Status check_buffer_limit(const Connection& connection) const;
  void close_marked();
  void close_silent(std::uint64_t now_ns);  // those whose time for a Hello is over

  EventLoop& loop_;
  MemoryBudget& budget_;
  std::uint64_t hello_ns_;  // how long a connection may take to say Hello
  FrameHandler on_frame_;
  ClosedHandler on_closed_;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  // by owner
  // These spare each turn of the loop a pass over all connections:
  std::unordered_map<std::uint32_t, std::uint64_t> owners_;  // by client
  std::set<std::uint64_t> before_hello_;                     // owners; the oldest first, since they only grow
  std::vector<std::uint64_t> closing_;                       // owners, some possibly closed already
  std::set<std::uint64_t> unread_;                           // owners that sent more frames than were handled
  std::vector<Connection*> polled_;                          // those whose rings are polled
  std::vector<Connection*> filled_;                          // used by read_rings() only
  std::vector<Frame> from_ring_;                             // used by read_rings() only; empty between calls
  std::uint64_t next_owner_ = 1;
  std::uint64_t waiting_ = 0;         // of all connections
  std::uint64_t buffered_bytes_ = 0;  // of all connections, as charged
  EventLoop::Timer closing_timer_;    // armed while any is marked as closing
  EventLoop::Timer hello_timer_;      // armed while any has not said Hello, no later than the oldest one's time is over
};

}  // namespace entrepot
