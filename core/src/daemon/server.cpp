#include "daemon/server.h"

#include <csignal>
#include <utility>

#include "daemon/address.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

}  // namespace

Server::Server(const Parts& parts, UniqueFd signals)
    : parts_(parts),
      signals_(std::move(signals)),
      connections_(parts.loop, parts.store.budget()),
      registry_(parts.loop, connections_, parts.link, parts.memory, parts.store),
      upgrader_(parts.link, parts.config, [this] { stop(State::kAnswering); }),
      listener_(
          parts.loop, parts.link, parts.config.socket_path,
          [this](UniqueFd socket, const os::PeerCredentials& peer) { connections_.add(std::move(socket), peer); }),
      service_({connections_, registry_, upgrader_, parts.store, parts.segments, parts.link},
               [this] { stop(State::kStopping); }) {}

Status Server::start() {
  RETURN_IF_ERROR(listener_.start());
  RETURN_IF_ERROR(upgrader_.watch(parts_.loop));
  RETURN_IF_ERROR(parts_.segments.watch(parts_.loop, parts_.provisioner_event));
  ASSIGN_OR_RETURN(signals_watch_,
                   parts_.loop.watch(signals_.get(), Interest::kRead, [this](const os::Ready&) { take_signals(); }));
  ASSIGN_OR_RETURN(spill_watch_, parts_.loop.watch(parts_.spill_event, Interest::kRead, [this](const os::Ready&) {
    os::clear_event(parts_.spill_event);
    if (parts_.spill != nullptr) parts_.store.take_spill_completions();
  }));
  store_timer_ = parts_.loop.timer([this](std::uint64_t) {
    parts_.store.tick();
    parts_.store.run_pending();
  });
  idle_timer_ = parts_.loop.timer([this](std::uint64_t) { stop_if_idle(); });
  registry_.watch_adopted_clients();
  return Status::ok();
}

Status Server::run() {
  parts_.store.run_pending();
  while (state_ != State::kStopping) {
    store_timer_.arm(parts_.store.next_deadline_ns());
    if (const Status waited = parts_.loop.dispatch(); !waited.is_ok()) return waited.with_context("waiting for events");
    connections_.read_rings();
    connections_.read_more();
    parts_.store.run_pending();
    store_timer_.arm(parts_.store.next_deadline_ns());
    parts_.loop.run_due();
    watch_idleness();
    if (state_ == State::kAnswering) hand_over();
  }
  log_info("shutting down and discarding ", count_of(parts_.store.parts().catalog.count(), "object"));
  parts_.provisioner.stop();
  if (parts_.spill != nullptr) parts_.spill->discard_all();
  clear_address(parts_.link.fd({DescriptorKind::kAddressLock, 0}));  // before the keeper ends; also if there is none
  parts_.link.send_shutdown();
  return Status::ok();
}

// New clients wait in the socket's queue. After a hand-over the next daemon accepts them.
void Server::stop(State next) {
  if (state_ != State::kStopping) state_ = next;
  listener_.stop();
}

// Ending by itself could lose the store: the keeper may have died by then.
void Server::hand_over() {
  state_ = State::kHandingOver;
  flush_log();
  parts_.link.hand_over([this] { take_back(); });
}

void Server::take_back() {
  if (state_ != State::kHandingOver) return;
  log_error("the keeper exited before it ran the other program: the store continues with this one");
  state_ = State::kRunning;
  listener_.restart();
}

void Server::take_signals() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      while (os::reap()) {
      }
      continue;
    }
    if (*signal == SIGUSR2) {
      upgrader_.upgrade_to_own_path();
      continue;
    }
    log_info("signal ", *signal, ": stopping the store");
    stop(State::kStopping);
  }
}

void Server::watch_idleness() {
  if (parts_.config.idle_exit_seconds == 0) return;
  if (!is_idle() || state_ != State::kRunning) return idle_timer_.disarm();
  if (idle_timer_.is_armed()) return;
  idle_timer_.arm(os::monotonic_ns() + parts_.config.idle_exit_seconds * kNsPerSecond);
}

void Server::stop_if_idle() {
  if (!is_idle() || state_ != State::kRunning) return;  // no longer, since this turn
  log_info("idle for ", parts_.config.idle_exit_seconds, " s: stopping the store");
  stop(State::kStopping);
}

}  // namespace entrepot
