#include "daemon/listener.h"

#include <utility>

#include "os/clock.h"
#include "os/log.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kPauseNs = 100'000'000;       // when the system has no more descriptors
constexpr std::uint64_t kSilenceNs = 10'000'000'000;  // between two log lines about that

}  // namespace

Listener::Listener(EventLoop& loop, KeeperLink& link, std::string socket_path, Accepted accepted,
                   AddressWatch::Look look)
    : loop_(loop),
      link_(link),
      address_(std::move(socket_path), std::move(look)),
      accepted_(std::move(accepted)),
      resume_timer_(loop.timer([this](std::uint64_t) { resume(); })),
      address_timer_(loop.timer([this](std::uint64_t) { check_address(); })) {}

Status Listener::start() {
  RETURN_IF_ERROR(watch_address());
  return watch();
}

Status Listener::watch_address() {
  RETURN_IF_ERROR(address_.open());
  ASSIGN_OR_RETURN(address_watch_,
                   loop_.watch(address_.event(), Interest::kRead, [this](const os::Ready&) { take_address(); }));
  address_timer_.arm(0);
  return Status::ok();
}

void Listener::stop() {
  if (!address_watch_.is_active()) return;
  watch_.reset();
  resume_timer_.disarm();
  address_timer_.disarm();
  address_watch_.reset();
  // For the next daemon: the name may belong to this socket already.
  if (UniqueFd replacement = address_.finish(link_); replacement.valid()) {
    link_.hold({DescriptorKind::kListenSocket, 0}, std::move(replacement));
  }
}

void Listener::restart() {
  if (address_watch_.is_active()) return;
  if (const Status watched = watch_address(); !watched.is_ok()) {
    log_error("cannot check the store's address any more: ", watched.to_string());
  }
  resume();
}

Status Listener::watch() {
  ASSIGN_OR_RETURN(watch_, loop_.watch(socket(), Interest::kRead, [this](const os::Ready&) { accept_all(); }));
  return Status::ok();
}

void Listener::accept_all() {
  while (true) {
    auto accepted = os::accept_unix(socket());
    if (!accepted.is_ok()) return pause(accepted.status());
    if (!accepted->valid()) return;
    const auto peer = os::peer_credentials(accepted->get());
    if (!peer.is_ok()) {
      log_error("closing a connection without credentials: ", peer.status().message());
      continue;
    }
    accepted_(accepted.take(), *peer);
  }
}

// The connection stays in the queue and keeps the socket readable: polling it further would be a busy loop.
void Listener::pause(const Status& why) {
  const std::uint64_t now = os::monotonic_ns();
  if (now >= silent_until_ns_) {
    log_error("cannot accept a connection, which stays queued: ", why.message());
    silent_until_ns_ = now + kSilenceNs;
  }
  watch_.reset();
  resume_timer_.arm(now + kPauseNs);
}

void Listener::resume() { resume_timer_.arm(watch().is_ok() ? kNoDeadline : os::monotonic_ns() + kPauseNs); }

// Connections queued at the old socket are accepted first.
void Listener::replace_socket(UniqueFd replacement) {
  accept_all();
  watch_.reset();
  link_.hold({DescriptorKind::kListenSocket, 0}, std::move(replacement));
  resume();
}

void Listener::check_address() {
  address_timer_.arm(os::monotonic_ns() + kAddressCheckNs);
  address_.begin(link_);
}

void Listener::take_address() {
  if (UniqueFd replacement = address_.take(link_); replacement.valid()) replace_socket(std::move(replacement));
}

}  // namespace entrepot
