#include "daemon/connections.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"

namespace entrepot {

namespace {

constexpr std::size_t kRequestsPerTurn = 64;  // of one ring, so that one busy client does not starve the others

}  // namespace

Connections::Connections(EventLoop& loop, MemoryBudget& budget, std::uint64_t hello_ns)
    : loop_(loop),
      budget_(budget),
      hello_ns_(hello_ns),
      closing_timer_(loop.timer([this](std::uint64_t) { close_marked(); })),
      hello_timer_(loop.timer([this](std::uint64_t now_ns) { close_silent(now_ns); })) {
  loop_.poll_memory({[this] { return rings_have_frames(); }, [this] { return let_rings_sleep(); }});
}

Connection* Connections::add(UniqueFd socket, const os::PeerCredentials& peer) {
  const std::uint64_t owner = next_owner_++;
  auto connection = std::make_unique<Connection>(owner, std::move(socket), peer, os::monotonic_ns());
  auto watched = loop_.watch(connection->frames_.fd(), Interest::kRead,
                             [this, raw = connection.get()](const os::Ready& ready) { on_ready(*raw, ready); });
  if (!watched.is_ok()) {
    log_error("cannot monitor a connection: ", watched.status().message());
    return nullptr;
  }
  connection->watch_ = watched.take();
  before_hello_.insert(before_hello_.end(), owner);
  hello_timer_.arm_if_idle(connection->accepted_ns_ + hello_ns_ + 1);
  return connections_.emplace_hint(connections_.end(), owner, std::move(connection))->second.get();
}

void Connections::identify(Connection& connection, std::uint32_t client) {
  connection.client_ = client;
  owners_.insert_or_assign(client, connection.owner_);
  before_hello_.erase(connection.owner_);
}

void Connections::close(std::uint64_t owner) {
  const auto match = connections_.find(owner);
  if (match == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(match->second);
  connections_.erase(match);
  waiting_ -= connection->waiting_;
  buffered_bytes_ -= connection->charged_bytes_;
  budget_.release(BudgetItem::kBuffers, connection->charged_bytes_);
  connection->watch_.reset();
  before_hello_.erase(owner);
  unread_.erase(owner);
  std::erase(polled_, connection.get());
  std::ranges::replace(filled_, connection.get(), nullptr);
  if (!connection->client_) return;
  owners_.erase(*connection->client_);
  if (on_closed_) on_closed_(owner, *connection->client_);
}

void Connections::close_of_client(std::uint32_t client) {
  if (const auto match = owners_.find(client); match != owners_.end()) close(match->second);
}

void Connections::mark_closing(Connection& connection) {
  if (std::exchange(connection.is_closing_, true)) return;
  closing_.push_back(connection.owner_);
  closing_timer_.arm(0);
}

Connection* Connections::find(std::uint64_t owner) {
  const auto match = connections_.find(owner);
  return match == connections_.end() ? nullptr : match->second.get();
}

void Connections::on_ready(Connection& connection, const os::Ready& ready) {
  if (ready.writable) {
    if (const Status flushed = connection.frames_.flush(); !flushed.is_ok()) mark_closing(connection);
    charge_buffers(connection);
    update_watch(connection);
  }
  if (ready.readable || ready.hangup) return read_from(connection);
  if (connection.is_closing_) close(connection.owner_);
}

void Connections::read_from(Connection& connection) {
  const std::uint64_t owner = connection.owner_;
  if (!connection.is_closing_) handle_incoming(connection);
  // A handler may have closed it (its client died, or reconnected on another connection).
  const Connection* left = find(owner);
  if (left != nullptr && left->is_closing_) close(owner);
}

void Connections::handle_incoming(Connection& connection) {
  const std::uint64_t owner = connection.owner_;
  FrameSocket::Incoming incoming = connection.frames_.receive();
  if (incoming.more) {
    unread_.insert(owner);
    loop_.skip_wait();
  } else {
    unread_.erase(owner);
  }
  if (!handle_frames(connection, incoming.frames)) return;
  charge_buffers(connection);
  if (incoming.status.is_ok()) incoming.status = check_buffer_limit(connection);
  if (incoming.status.is_ok()) return;
  if (incoming.status.code() != Code::kStoreUnavailable) return refuse_malformed(connection, incoming.status);
  mark_closing(connection);
}

bool Connections::handle_frames(Connection& connection, std::vector<Frame>& frames) {
  const std::uint64_t owner = connection.owner_;
  for (Frame& frame : frames) {
    if (frame.header.type == MessageType::kRingFilled && connection.rings_) {
      poll_ring(connection);
    } else {
      on_frame_(connection, frame);
    }
    loop_.expect_event();  // after a request, the next one often follows closely
    if (find(owner) == nullptr || connection.is_closing_) return false;
  }
  return true;
}

void Connections::refuse_malformed(Connection& connection, const Status& why) {
  log_warning("connection ", connection.owner_, " of process ", connection.peer_.pid, ": ", why.message());
  refuse(connection.owner_, 0, why);
  mark_closing(connection);
}

void Connections::open_rings(Connection& connection, std::uint64_t number) {
  if (connection.rings_) {
    return refuse(connection.owner_, number, Status(Code::kInvalidArgument, "this connection has rings already"));
  }
  auto created = FrameRings::create();
  if (!created.is_ok()) return refuse(connection.owner_, number, created.status());
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(created->fd));
  reply(connection.owner_, number, OpenRingsReply{kRingBytes}, std::move(fds));
  connection.rings_ = std::move(created->rings);
  charge_buffers(connection);
}

void Connections::poll_ring(Connection& connection) {
  connection.has_used_rings_ = true;
  connection.rings_->request_consumer.wake_up();
  if (!std::exchange(connection.is_polled_, true)) polled_.push_back(&connection);
}

bool Connections::rings_have_frames() const {
  return std::ranges::any_of(polled_,
                             [](const Connection* each) { return each->rings_->request_consumer.has_frames(); });
}

bool Connections::let_rings_sleep() {
  std::erase_if(polled_, [](Connection* each) {
    each->is_polled_ = !each->rings_->request_consumer.sleep();
    return !each->is_polled_;
  });
  return polled_.empty();
}

void Connections::read_rings() {
  std::ranges::copy_if(polled_, std::back_inserter(filled_),
                       [](const Connection* each) { return each->rings_->request_consumer.has_frames(); });
  for (std::size_t i = 0; i < filled_.size(); ++i) {  // handling one may close others, which are then null
    Connection* const connection = filled_[i];
    if (connection == nullptr || connection->is_closing_) continue;
    const Status popped = connection->rings_->request_consumer.pop(from_ring_, kRequestsPerTurn);
    const bool is_open = handle_frames(*connection, from_ring_);
    from_ring_.clear();
    if (is_open && !popped.is_ok()) refuse_malformed(*connection, popped);
  }
  filled_.clear();
}

void Connections::read_more() {
  if (unread_.empty()) return;
  const std::set<std::uint64_t> owners = std::exchange(unread_, {});
  for (const std::uint64_t owner : owners) {
    if (Connection* connection = find(owner); connection != nullptr) read_from(*connection);
  }
}

void Connections::send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                       std::vector<UniqueFd> fds) {
  Connection* connection = find(owner);
  if (connection == nullptr || connection->is_closing_) return;  // it has ended; nobody waits for this
  if (connection->has_used_rings_ && fds.empty() && body.size() <= kMaxRingBodyBytes) {
    RingProducer& ring = connection->rings_->response_producer;
    if (ring.push(frame_header(type, request, body.size()), body)) {
      if (!ring.wake()) return;
      type = MessageType::kRingFilled;
      request = 0;
      body.clear();
    }
  }
  Status sent = connection->frames_.send(type, request, std::move(body), std::move(fds));
  if (type != MessageType::kRingFilled && connection->has_used_rings_) notify_of_socket(*connection);
  charge_buffers(*connection);
  if (sent.is_ok()) sent = check_buffer_limit(*connection);
  if (!sent.is_ok()) {
    log_info("closing connection ", owner, ": ", sent.message());
    return mark_closing(*connection);
  }
  update_watch(*connection);
}

// A client that is blocked at its ring does not see the socket. If the ring is full, the client is not blocked.
void Connections::notify_of_socket(Connection& connection) {
  RingProducer& ring = connection.rings_->response_producer;
  if (ring.push(frame_header(MessageType::kSocketFilled, 0, 0), {})) static_cast<void>(ring.wake());
}

void Connections::refuse(std::uint64_t owner, std::uint64_t request, const Status& status) {
  ErrorBody body;
  body.code = status.code();
  body.retryable = status.retryable() ? 1 : 0;
  body.message = status.message();
  send(owner, MessageType::kError, request, to_wire(body), {});
}

void Connections::update_watch(Connection& connection) {
  const bool wants = connection.frames_.wants_write();
  if (wants == connection.watches_write_) return;
  const Status changed = connection.watch_.change(wants ? Interest::kReadAndWrite : Interest::kRead);
  if (!changed.is_ok()) {
    log_error("cannot monitor connection ", connection.owner_, ": ", changed.message());
    return mark_closing(connection);
  }
  connection.watches_write_ = wants;
}

void Connections::charge_buffers(Connection& connection) {
  const std::uint64_t buffered_bytes =
      connection.frames_.buffered_bytes() + (connection.rings_ ? FrameRings::bytes() : 0);
  if (buffered_bytes > connection.charged_bytes_) {
    budget_.charge(BudgetItem::kBuffers, buffered_bytes - connection.charged_bytes_);
  } else {
    budget_.release(BudgetItem::kBuffers, connection.charged_bytes_ - buffered_bytes);
  }
  buffered_bytes_ += buffered_bytes - connection.charged_bytes_;
  connection.charged_bytes_ = buffered_bytes;
}

Status Connections::check_buffer_limit(const Connection& connection) const {
  if (connection.charged_bytes_ <= kFairBufferBytes) return Status::ok();
  const std::uint64_t limit = std::clamp(budget_.limit_bytes() / 2, kMinBufferLimit, kMaxBufferLimit);
  if (buffered_bytes_ <= limit) return Status::ok();
  return Status(
      Code::kStoreFull,
      concat("all connections together buffer ", format_bytes(buffered_bytes_), " of incomplete requests and ",
             "unread responses, this one ", format_bytes(connection.charged_bytes_), "; the limit is ",
             format_bytes(limit), ": read the responses, or request less at once"),
      true);
}

Status Connections::begin_wait(Connection& connection, std::uint64_t cost) {
  const std::uint64_t mine = connection.waiting_ + cost;
  if (mine > kMaxWaiting || (mine > kFairWaiting && waiting_ + cost > kMaxWaitingOfAll)) {
    return Status(
        Code::kStoreFull,
        "too many requests of this connection are already waiting for a response: wait for fewer objects at once",
        true);
  }
  connection.waiting_ = mine;
  waiting_ += cost;
  return Status::ok();
}

void Connections::end_wait(std::uint64_t owner, std::uint64_t cost) {
  Connection* connection = find(owner);
  if (connection == nullptr) return;  // its cost was released with it
  connection->waiting_ -= cost;
  waiting_ -= cost;
}

void Connections::close_marked() {
  for (std::size_t i = 0; i < closing_.size(); ++i)  // closing one may mark others
    close(closing_[i]);
  closing_.clear();
  closing_timer_.disarm();
}

// The timer is not moved when the oldest one says Hello: that would be once per connection, for a time that seldom
// matters. It may therefore come too early, and is then set anew.
void Connections::close_silent(std::uint64_t now_ns) {
  while (!before_hello_.empty()) {
    const Connection& oldest = *connections_.at(*before_hello_.begin());
    const std::uint64_t until_ns = oldest.accepted_ns_ + hello_ns_;
    if (now_ns <= until_ns) return hello_timer_.arm(until_ns + 1);
    close(oldest.owner_);
  }
}

}  // namespace entrepot
