#include "daemon/server_loop.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kAcceptPauseNs = 100'000'000;       // when the system has no more descriptors
constexpr std::uint64_t kAcceptSilenceNs = 10'000'000'000;  // between two log lines about that
constexpr std::uint64_t kHelloNs = 10'000'000'000;

}  // namespace

Status ServerLoop::watch() {
  const int listening = state_.link.fd({DescriptorKind::kListenSocket, 0});
  RETURN_IF_ERROR(state_.poller.add(listening, watch_key(WatchKind::kListen), true, false));
  RETURN_IF_ERROR(state_.poller.add(signals_.get(), watch_key(WatchKind::kSignals), true, false));
  RETURN_IF_ERROR(state_.poller.add(provisioner_event_, watch_key(WatchKind::kProvisioner), true, false));
  RETURN_IF_ERROR(state_.poller.add(spill_event_, watch_key(WatchKind::kSpill), true, false));
  RETURN_IF_ERROR(state_.program_check.open());
  RETURN_IF_ERROR(state_.poller.add(state_.program_check.event(), watch_key(WatchKind::kProgramCheck), true, false));
  RETURN_IF_ERROR(state_.poller.add(state_.link.event_fd(), watch_key(WatchKind::kKeeper), true, false));
  state_.watch_adopted_clients();
  return Status::ok();
}

int ServerLoop::run() {
  state_.store.run_pending();
  while (!state_.stopping) {
    const std::uint64_t now = os::monotonic_ns();
    const std::uint64_t wake = next_wake_ns();
    const std::uint64_t sleep_ms = wake <= now ? 0 : (wake - now + 999'999) / 1'000'000;
    auto ready = wait(has_buffered_frames_ ? 0 : sleep_ms);
    if (!ready.is_ok()) {
      log_error("waiting for events: ", ready.status().message());
      return 1;  // the keeper starts another daemon, which adopts everything
    }
    for (const os::Ready& event : *ready)
      take_event(event);
    if (has_buffered_frames_) read_more();
    state_.store.run_pending();
    run_maintenance();
  }
  if (state_.handing_over) {  // as if it had died: nothing is released
    provisioner_.stop();
    return 0;
  }
  log_info("shutting down: ", state_.store.parts().catalog.count(), " objects are discarded");
  provisioner_.stop();
  if (spill_ != nullptr) spill_->discard_all();
  clear_address(state_.link.fd({DescriptorKind::kAddressLock, 0}));  // before the keeper ends; also if there is none
  state_.link.send_shutdown();
  return 0;
}

// After a request the next one often follows closely, so poll before the thread sleeps.
Result<std::vector<os::Ready>> ServerLoop::wait(std::uint64_t sleep_ms) {
  if (std::exchange(handled_request_, false) && sleep_ms > 0) {
    Result<std::vector<os::Ready>> ready = std::vector<os::Ready>{};
    const bool came = after_request_.poll([&] {
      ready = state_.poller.wait(os::Deadline::after_ms(0));
      return !ready.is_ok() || !ready->empty();
    });
    if (came) return ready;
  }
  return state_.poller.wait(os::Deadline::after_ms(sleep_ms));
}

void ServerLoop::take_event(const os::Ready& ready) {
  const auto kind = static_cast<WatchKind>(ready.key >> 56);
  const std::uint64_t number = ready.key & ((1ULL << 56) - 1);
  switch (kind) {
    case WatchKind::kListen:
      return accept_all();
    case WatchKind::kSignals:
      return take_signals();
    case WatchKind::kKeeper:
      state_.link.on_event();
      return state_.segments.publish_ready();
    case WatchKind::kProvisioner:
      os::clear_event(provisioner_event_);
      return state_.segments.take_finished();
    case WatchKind::kSpill:
      os::clear_event(spill_event_);
      if (spill_ != nullptr) state_.store.take_spill_completions();
      return;
    case WatchKind::kProgramCheck:
      return state_.program_check.take();
    case WatchKind::kLiveness:
      if (ready.hangup) state_.client_died(static_cast<std::uint32_t>(number));
      return;
    case WatchKind::kConnection:
      break;
  }
  Connection* connection = state_.find(number);
  if (connection == nullptr) return;  // closed by an earlier event
  if (ready.writable) {
    if (const Status flushed = connection->frames.flush(); !flushed.is_ok()) connection->closing = true;
    state_.charge_buffers(*connection);
    state_.update_watch(*connection);
  }
  if (!connection->closing && (ready.readable || ready.hangup)) read_from(*connection);
  // A handler may have closed it (its client died, or reconnected on another connection).
  connection = state_.find(number);
  if (connection != nullptr && connection->closing) state_.close_connection(number);
}

void ServerLoop::accept_all() {
  if (state_.handing_over) return;  // new connections belong to the next daemon
  const int listening = state_.link.fd({DescriptorKind::kListenSocket, 0});
  while (true) {
    auto socket = os::accept_unix(listening);
    if (!socket.is_ok()) return pause_accepting(socket.status());
    if (!socket->valid()) return;
    auto peer = os::peer_credentials(socket->get());
    if (!peer.is_ok()) {
      log_error("closing a connection without credentials: ", peer.status().message());
      continue;
    }
    state_.add_connection(std::move(socket).value(), *peer);
  }
}

// Replaces the listening socket; connections queued at the old one are accepted first.
void ServerLoop::listen_on(UniqueFd socket) {
  accept_all();
  const DescriptorTag tag{DescriptorKind::kListenSocket, 0};
  state_.poller.remove(state_.link.fd(tag));
  state_.link.hold(tag, std::move(socket));
  resume_accepting();
}

// The connection stays in the queue and keeps the socket readable: polling it further would be a busy loop.
void ServerLoop::pause_accepting(const Status& why) {
  const std::uint64_t now = os::monotonic_ns();
  if (now >= accept_silent_until_ns_) {
    log_error("cannot accept a connection, which stays queued: ", why.message());
    accept_silent_until_ns_ = now + kAcceptSilenceNs;
  }
  state_.poller.remove(state_.link.fd({DescriptorKind::kListenSocket, 0}));
  accept_again_ns_ = now + kAcceptPauseNs;
}

void ServerLoop::resume_accepting() {
  const int listening = state_.link.fd({DescriptorKind::kListenSocket, 0});
  if (const Status added = state_.poller.add(listening, watch_key(WatchKind::kListen), true, false); !added.is_ok()) {
    accept_again_ns_ = os::monotonic_ns() + kAcceptPauseNs;
    return;
  }
  accept_again_ns_ = 0;
}

void ServerLoop::read_from(Connection& connection) {
  const std::uint64_t owner = connection.owner;
  FrameSocket::Incoming incoming = connection.frames.receive();
  connection.has_more = incoming.more;
  has_buffered_frames_ = has_buffered_frames_ || incoming.more;
  for (Frame& frame : incoming.frames) {
    state_.handle(connection, frame);
    handled_request_ = true;
    if (state_.find(owner) == nullptr) return;
    if (connection.closing) return;
  }
  state_.charge_buffers(connection);
  if (incoming.status.is_ok()) incoming.status = state_.check_buffer_limit(connection);
  if (incoming.status.is_ok()) return;
  if (incoming.status.code() != Code::kStoreUnavailable) {
    log_warning("connection ", owner, " of process ", connection.peer.pid, ": ", incoming.status.message());
    state_.refuse(owner, 0, incoming.status);
  }
  connection.closing = true;
}

void ServerLoop::read_more() {
  has_buffered_frames_ = false;
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, connection] : state_.connections) {
    if (connection->has_more) owners.push_back(owner);
  }
  for (const std::uint64_t owner : owners) {
    Connection* connection = state_.find(owner);
    if (connection == nullptr) continue;
    read_from(*connection);
    connection = state_.find(owner);
    if (connection != nullptr && connection->closing) state_.close_connection(owner);
  }
}

void ServerLoop::take_signals() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      while (os::reap()) {
      }
      continue;
    }
    if (*signal == SIGUSR2) {
      state_.upgrade_to_own_path();
      continue;
    }
    log_info("signal ", *signal, ": stopping the store");
    state_.stopping = true;
  }
}

void ServerLoop::run_maintenance() {
  const std::uint64_t now = os::monotonic_ns();
  if (now >= state_.store.next_deadline_ns()) {
    state_.store.tick();
    state_.store.run_pending();
  }
  if (accept_again_ns_ != 0 && now >= accept_again_ns_ && !state_.handing_over) resume_accepting();
  if (now >= address_.next_check_ns() && !state_.stopping) {
    if (UniqueFd socket = address_.check(state_.link); socket.valid()) listen_on(std::move(socket));
  }
  std::vector<std::uint64_t> expired;
  for (const auto& [owner, connection] : state_.connections) {
    const bool silent = !connection->client && now - connection->accepted_ns > kHelloNs;
    if (connection->closing || silent) expired.push_back(owner);
  }
  for (const std::uint64_t owner : expired)
    state_.close_connection(owner);
  if (now >= state_.link.next_tick_ns()) {
    state_.link.tick();
    state_.segments.publish_ready();
  }
  if (idle_for_long()) {
    log_info("idle for ", state_.config.idle_exit_seconds, " s: stopping the store");
    state_.stopping = true;
  }
}

bool ServerLoop::idle_for_long() {
  if (state_.config.idle_exit_seconds == 0) return false;
  if (!state_.store.is_idle() || !state_.connections.empty()) {
    idle_since_ns_ = 0;
    return false;
  }
  const std::uint64_t now = os::monotonic_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  return now - idle_since_ns_ >= state_.config.idle_exit_seconds * kNsPerSecond;
}

std::uint64_t ServerLoop::next_wake_ns() const {
  std::uint64_t wake =
      std::min({state_.store.next_deadline_ns(), state_.link.next_tick_ns(), address_.next_check_ns()});
  if (accept_again_ns_ != 0) wake = std::min(wake, accept_again_ns_);
  if (idle_since_ns_ != 0) {
    wake = std::min(wake, idle_since_ns_ + state_.config.idle_exit_seconds * kNsPerSecond);
  }
  for (const auto& [owner, connection] : state_.connections) {
    if (!connection->client) wake = std::min(wake, connection->accepted_ns + kHelloNs + 1);
  }
  return wake;
}

}  // namespace entrepot
