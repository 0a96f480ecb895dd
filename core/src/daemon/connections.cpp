// Connections: adding, watching, answering, closing.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/connections.h"
#include "os/clock.h"
#include "os/log.h"

namespace entrepot {

Connection* ServerState::add_connection(UniqueFd socket, const os::PeerCredentials& peer) {
  auto connection = std::make_unique<Connection>(next_owner_++, std::move(socket));
  connection->peer = peer;
  connection->accepted_ns = os::monotonic_ns();
  const Status watched =
      poller.add(connection->frames.fd(), watch_key(WatchKind::kConnection, connection->owner), true, false);
  if (!watched.is_ok()) {
    log_error("cannot monitor a connection: ", watched.message());
    return nullptr;
  }
  Connection* raw = connection.get();
  connections.emplace(raw->owner, std::move(connection));
  return raw;
}

Connection* ServerState::find(std::uint64_t owner) {
  const auto found = connections.find(owner);
  return found == connections.end() ? nullptr : found->second.get();
}

void ServerState::close_connection(std::uint64_t owner) {
  const auto found = connections.find(owner);
  if (found == connections.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections.erase(found);
  waiting_ -= connection->waiting;
  store.budget().release(BudgetItem::kBuffers, connection->charged_bytes);
  poller.remove(connection->frames.fd());
  if (connection->client) store.disconnected(*connection->client, owner);
}

void ServerState::update_watch(Connection& connection) {
  const bool wants = connection.frames.wants_write();
  if (wants == connection.watches_write) return;
  const Status changed =
      poller.change(connection.frames.fd(), watch_key(WatchKind::kConnection, connection.owner), true, wants);
  if (!changed.is_ok()) {
    log_error("cannot monitor connection ", connection.owner, ": ", changed.message());
    connection.closing = true;
    return;
  }
  connection.watches_write = wants;
}

void ServerState::send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                       std::vector<UniqueFd> fds) {
  Connection* connection = find(owner);
  if (connection == nullptr || connection->closing) return;  // it has ended; nobody waits for this
  Status sent = connection->frames.send(type, request, std::move(body), std::move(fds));
  charge_buffers(*connection);
  if (sent.is_ok()) sent = check_buffer_limit(*connection);
  if (!sent.is_ok()) {
    log_info("closing connection ", owner, ": ", sent.message());
    connection->closing = true;
    return;
  }
  update_watch(*connection);
}

void ServerState::charge_buffers(Connection& connection) {
  const std::uint64_t buffered_bytes = connection.frames.buffered_bytes();
  if (buffered_bytes > connection.charged_bytes) {
    store.budget().charge(BudgetItem::kBuffers, buffered_bytes - connection.charged_bytes);
  } else {
    store.budget().release(BudgetItem::kBuffers, connection.charged_bytes - buffered_bytes);
  }
  connection.charged_bytes = buffered_bytes;
}

Status ServerState::check_buffer_limit(const Connection& connection) const {
  if (connection.frames.buffered_bytes() <= kFairBufferBytes) return Status::ok();
  std::uint64_t buffered = 0;
  for (const auto& [owner, other] : connections)
    buffered += other->frames.buffered_bytes();
  const std::uint64_t limit = std::clamp(store.budget().limit_bytes() / 2, kMinBufferLimit, kMaxBufferLimit);
  if (buffered <= limit) return Status::ok();
  return Status(Code::kStoreFull,
                concat("all connections together buffer ", format_bytes(buffered), " of incomplete requests and ",
                       "unread responses, this one ", format_bytes(connection.frames.buffered_bytes()),
                       "; the limit is ", format_bytes(limit), ": read the responses, or request less at once"),
                true);
}

Status ServerState::begin_wait(Connection& connection, std::uint64_t cost) {
  const std::uint64_t mine = connection.waiting + cost;
  if (mine > kMaxWaiting || (mine > kFairWaiting && waiting_ + cost > kMaxWaitingOfAll)) {
    return Status(
        Code::kStoreFull,
        "too many requests of this connection are already waiting for a response: wait for fewer objects at once",
        true);
  }
  connection.waiting = mine;
  waiting_ += cost;
  return Status::ok();
}

void ServerState::end_wait(std::uint64_t owner, std::uint64_t cost) {
  Connection* connection = find(owner);
  if (connection == nullptr) return;  // its cost was released with it
  connection->waiting -= cost;
  waiting_ -= cost;
}

void ServerState::refuse(std::uint64_t owner, std::uint64_t request, const Status& status) {
  ErrorBody body;
  body.code = status.code();
  body.retryable = status.retryable() ? 1 : 0;
  body.message = status.message();
  send(owner, MessageType::kError, request, to_wire(body), {});
}

}  // namespace entrepot
