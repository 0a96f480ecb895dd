#include "daemon/listener.h"

#include <algorithm>
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
    : loop_(loop), link_(link), address_(std::move(socket_path), std::move(look)), accepted_(std::move(accepted)) {}

Status Listener::start() {
  loop_.add_deadline([this] { return next_deadline_ns(); }, [this](std::uint64_t now_ns) { on_deadline(now_ns); });
  RETURN_IF_ERROR(address_.open());
  ASSIGN_OR_RETURN(address_watch_,
                   loop_.watch(address_.event(), Interest::kRead, [this](const os::Ready&) { take_address(); }));
  return watch();
}

void Listener::stop() {
  if (std::exchange(stopped_, true)) return;
  watch_.reset();
  address_watch_.reset();
  // For the next daemon: the name may belong to this socket already.
  if (UniqueFd replacement = address_.finish(link_); replacement.valid()) {
    link_.hold({DescriptorKind::kListenSocket, 0}, std::move(replacement));
  }
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
  resume_at_ns_ = now + kPauseNs;
}

void Listener::resume() { resume_at_ns_ = watch().is_ok() ? 0 : os::monotonic_ns() + kPauseNs; }

// Connections queued at the old socket are accepted first.
void Listener::replace_socket(UniqueFd replacement) {
  accept_all();
  watch_.reset();
  link_.hold({DescriptorKind::kListenSocket, 0}, std::move(replacement));
  resume();
}

std::uint64_t Listener::next_deadline_ns() const {
  if (stopped_) return UINT64_MAX;
  return resume_at_ns_ == 0 ? address_.next_check_ns() : std::min(resume_at_ns_, address_.next_check_ns());
}

void Listener::on_deadline(std::uint64_t now_ns) {
  if (resume_at_ns_ != 0 && now_ns >= resume_at_ns_) resume();
  if (now_ns >= address_.next_check_ns()) address_.begin(link_);
}

void Listener::take_address() {
  if (UniqueFd replacement = address_.take(link_); replacement.valid()) replace_socket(std::move(replacement));
}

}  // namespace entrepot
