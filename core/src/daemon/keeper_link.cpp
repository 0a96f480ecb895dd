#include "daemon/keeper_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kKeeperGraceNs = kSecondNs;   // for a keeper whose channel broke to exit by itself
constexpr std::uint64_t kStartNs = 10 * kSecondNs;    // for a new keeper to report that it is ready
constexpr std::uint64_t kLoneTryNs = kSecondNs;       // between two attempts to start one
constexpr std::uint64_t kKillTryNs = 10 * kSecondNs;  // between two tries to kill one
constexpr std::uint64_t kLookNs = kSecondNs / 50;     // polling interval for a process without a pidfd
constexpr std::uint64_t kUpgradeNs = 10 * kSecondNs;  // for the keeper to accept another program
constexpr std::uint64_t kGoodbyeMs = 5'000;           // for the keeper's socket to accept the last message
constexpr int kChannelInKeeper = 3;
constexpr std::uint64_t kKeeperChannelKey = 1;
constexpr std::uint64_t kKeeperKey = 2;

}  // namespace

Status KeeperLink::take_over() {
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  poller_ = std::move(poller);
  while (true) {
    ASSIGN_OR_RETURN(ReceivedMessage received, channel_.receive(os::Deadline::never()));
    if (received.message.verb == KeeperVerb::kRestored) {
      keeper_pid_ = static_cast<std::uint32_t>(received.message.number);
      break;
    }
    if (received.message.verb != KeeperVerb::kRestore || !received.fd.valid()) {
      return Status(Code::kInternal,
                    concat("the keeper sent verb ", received.message.verb, " instead of what it holds"));
    }
    held_.insert_or_assign(received.message.tag(), std::move(received.fd));
  }
  keeper_ = os::ProcessHandle::of_parent(static_cast<std::int32_t>(keeper_pid_));
  RETURN_IF_ERROR(watch());
  if (keeper_.gone()) {
    log_warning("keeper ", keeper_pid_, " ended when it had sent what it held; starting another");
    keeper_ended();
  }
  return Status::ok();
}

Status KeeperLink::watch() {
  watches_write_ = false;
  RETURN_IF_ERROR(poller_->add(channel_.fd(), kKeeperChannelKey, true, false));
  return keeper_.fd() < 0 ? Status::ok() : poller_->add(keeper_.fd(), kKeeperKey, true, false);
}

void KeeperLink::hold(const HeldTag& tag, UniqueFd fd) {
  if (may_restore()) {
    static_cast<void>(channel_.take_back(tag));  // of a descriptor that this one replaces
    channel_.post(keeper_message(KeeperVerb::kHold, tag), fd.get());
  }
  held_.insert_or_assign(tag, std::move(fd));
  send();
}

bool KeeperLink::is_safe(const HeldTag& tag) const {
  // A keeper that is being filled, or does not exist, starts no daemon; one that is being ended still could.
  return (state_ != State::kLinked && state_ != State::kEnding) || !channel_.is_unsent(tag);
}

void KeeperLink::drop(const HeldTag& tag) {
  if (!held_.contains(tag)) return;
  if (may_restore() && !channel_.take_back(tag)) channel_.post(keeper_message(KeeperVerb::kDrop, tag));
  held_.erase(tag);
  send();
}

int KeeperLink::fd(const HeldTag& tag) const {
  const auto found = held_.find(tag);
  return found == held_.end() ? -1 : found->second.get();
}

void KeeperLink::on_event() {
  const auto ready = poller_->wait(os::Deadline::after_ms(0));
  if (!ready.is_ok()) return lose(ready.status());
  // Its end first: earlier messages are then meaningless.
  if (keeper_.gone() && state_ != State::kAlone) return keeper_ended();
  for (const os::Ready& one : *ready) {
    if (one.key != kKeeperChannelKey || !channel_.is_open()) continue;
    if (one.writable) send();
    if (one.readable || one.hangup) take_messages();
  }
}

void KeeperLink::take_messages() {
  while (channel_.is_open() && state_ != State::kEnding) {
    const auto received = channel_.receive();
    if (received.code() == Code::kTimeout) return;
    if (!received.is_ok()) return lose(received.status());
    take(received->message);
  }
}

void KeeperLink::take(const KeeperMessage& message) {
  if (message.verb == KeeperVerb::kRestored && state_ == State::kStarting) return fill();
  if (message.verb == KeeperVerb::kAck) {  // possibly for an upgrade that was given up
    if (upgrade_ && upgrade_->number == message.number) finish_upgrade(Status::ok());
    return;
  }
  if (message.verb == KeeperVerb::kLogDropped) {
    keeper_log_lines_dropped_ = message.number;
    return;
  }
  log_error("the keeper sent verb ", message.verb, " although nothing was asked");
}

void KeeperLink::send() {
  if (!takes_messages()) return;
  Status flushed = channel_.flush();
  if (flushed.is_ok() && state_ == State::kFilling && channel_.all_sent()) {
    // Only now, so that what was published meanwhile is included; from here on is_safe() is checked for each.
    state_ = State::kLinked;
    channel_.post(keeper_message(KeeperVerb::kRestored));
    flushed = channel_.flush();
  }
  if (!flushed.is_ok()) return lose(flushed);
  if (channel_.wants_write() != watches_write_) {
    watches_write_ = channel_.wants_write();
    const Status changed = poller_->change(channel_.fd(), kKeeperChannelKey, true, watches_write_);
    if (!changed.is_ok()) return lose(changed);
  }
  const bool is_new = static_cast<std::int32_t>(keeper_pid_) != keeper_.pid();
  if (state_ == State::kLinked && is_new && channel_.all_sent()) {
    keeper_pid_ = static_cast<std::uint32_t>(keeper_.pid());
    log_info("keeper ", keeper_pid_, " started, holds ", held_.size(), " descriptors");
  }
}

// The channel is unusable; the process may be alive, and is replaced only once it has ended.
void KeeperLink::lose(const Status& why) {
  if (state_ == State::kEnding || state_ == State::kAlone) return;
  if (keeper_.gone()) return keeper_ended();
  log_warning("keeper ", keeper_.pid(), " is lost (", why.message(), "): it is replaced when it has ended");
  end_keeper(kKeeperGraceNs);
}

void KeeperLink::end_keeper(std::uint64_t grace_ns) {
  state_ = State::kEnding;
  state_until_ns_ = os::monotonic_ns() + grace_ns;
  poller_->remove(channel_.fd());  // it would be readable forever
}

void KeeperLink::keeper_ended() {
  const bool was_linked = state_ == State::kLinked || state_ == State::kEnding;
  if (state_ == State::kLinked) log_warning("keeper ", keeper_.pid(), " is gone; starting another");
  if (channel_.is_open()) poller_->remove(channel_.fd());
  if (keeper_.fd() >= 0) poller_->remove(keeper_.fd());
  channel_.close();
  keeper_log_lines_dropped_ = 0;
  keeper_ = os::ProcessHandle();
  while (os::reap()) {  // it is our child if we started it after an earlier one died
  }
  finish_upgrade(Status(Code::kStoreUnavailable, "the keeper, which would have taken over, is gone: try again", true));
  if (was_linked) return start_keeper();
  log_error("the new keeper ended at once, so the store dies with this daemon until there is one");
  keeper_pid_ = 0;
  state_ = State::kAlone;
  state_until_ns_ = os::monotonic_ns() + kLoneTryNs;
}

void KeeperLink::start_keeper() {
  const Status started = spawn_keeper();
  if (started.is_ok()) {
    state_ = State::kStarting;
    state_until_ns_ = os::monotonic_ns() + kStartNs;
    return;
  }
  log_error("no keeper can be started, so the store dies with this daemon: ", started.to_string());
  keeper_pid_ = 0;
  state_ = State::kAlone;
  state_until_ns_ = os::monotonic_ns() + kLoneTryNs;
}

Status KeeperLink::spawn_keeper() {
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kSeqPacket));
  os::SpawnOptions spawn;
  spawn.program = "/proc/self/exe";
  spawn.argv = {"entrepotd", "--role=keeper", concat("--daemon-fd=", kChannelInKeeper),
                concat("--daemon-pid=", os::current_pid())};
  spawn.argv.insert(spawn.argv.end(), keeper_arguments_.begin(), keeper_arguments_.end());
  spawn.fds = {{pair.second.get(), kChannelInKeeper}};
  spawn.new_session = true;
  spawn.ends_with_parent = true;
  spawn.exec_wait_ms = 0;  // clients would wait with us
  ASSIGN_OR_RETURN(os::Child child, os::spawn(spawn));
  keeper_ = os::ProcessHandle(std::move(child));
  channel_ = KeeperChannel(std::move(pair.first));
  if (const Status watched = watch(); !watched.is_ok()) {
    // Nothing was sent to it: it ends by itself when its channel closes.
    if (keeper_.fd() >= 0) poller_->remove(keeper_.fd());
    poller_->remove(channel_.fd());
    channel_.close();
    keeper_ = os::ProcessHandle();
    return watched;
  }
  return Status::ok();
}

void KeeperLink::fill() {
  state_ = State::kFilling;
  state_until_ns_ = UINT64_MAX;
  for (const auto& [tag, fd] : held_)
    channel_.post(keeper_message(KeeperVerb::kHold, tag), fd.get());
  send();
}

std::uint64_t KeeperLink::next_tick_ns() const {
  std::uint64_t next = state_until_ns_;
  if (channel_.again_ns() != 0) next = std::min(next, channel_.again_ns());
  if (upgrade_) next = std::min(next, upgrade_->until_ns);
  if (keeper_.pid() != 0 && keeper_.fd() < 0) next = std::min(next, os::monotonic_ns() + kLookNs);
  return next;
}

void KeeperLink::tick() {
  const std::uint64_t now = os::monotonic_ns();
  if (state_ != State::kAlone && keeper_.fd() < 0 && keeper_.gone()) keeper_ended();
  if (channel_.again_ns() != 0 && now >= channel_.again_ns()) send();
  if (upgrade_ && now >= upgrade_->until_ns) {
    if (takes_messages()) channel_.post(keeper_message(KeeperVerb::kUpgrade));  // without a program: cancels
    send();
    finish_upgrade(Status(Code::kTimeout,
                          concat("the keeper (process ", keeper_pid_,
                                 ") does not answer, so nothing was changed: is it "
                                 "stopped? Try again when it runs"),
                          true));
  }
  if (now < state_until_ns_) return;
  state_until_ns_ = UINT64_MAX;
  if (state_ == State::kAlone) return start_keeper();
  if (state_ == State::kStarting) {
    log_error("the new keeper (process ", keeper_.pid(), ") says nothing: it is ended, and another is started");
    end_keeper(0);
    state_until_ns_ = UINT64_MAX;
  }
  if (state_ != State::kEnding) return;
  if (const Status killed = keeper_.kill(); !killed.is_ok()) {
    log_error("keeper ", keeper_.pid(), " cannot be killed, and is not replaced before it ends: ", killed.to_string());
    state_until_ns_ = now + kKillTryNs;
  }
}

void KeeperLink::upgrade(UniqueFd program, Done done) {
  if (state_ != State::kLinked) {
    return done(Status(Code::kStoreUnavailable, "the store has no keeper just now, which would take over: try again"));
  }
  if (upgrade_) return done(Status(Code::kStoreUnavailable, "another upgrade is under way: try again", true));
  upgrade_ = Upgrade{next_upgrade_++, os::monotonic_ns() + kUpgradeNs, std::move(done)};
  channel_.post(keeper_message(KeeperVerb::kUpgrade, {HeldKind::kListenSocket, upgrade_->number}), std::move(program));
  send();
}

void KeeperLink::finish_upgrade(const Status& status) {
  if (!upgrade_) return;
  const Done done = std::move(upgrade_->done);
  upgrade_.reset();
  done(status);
}

void KeeperLink::goodbye() {
  if (!takes_messages()) return;
  channel_.post(keeper_message(KeeperVerb::kGoodbye));
  const auto deadline = os::Deadline::after_ms(kGoodbyeMs);
  Status sent = channel_.flush();
  while (sent.is_ok() && !channel_.all_sent()) {
    const auto writable = os::wait_writable(channel_.fd(), deadline);
    if (!writable.is_ok() || !*writable) break;
    if (channel_.again_ns() != 0) os::pause_ms(1);
    sent = channel_.flush();
  }
  if (channel_.all_sent()) return;
  log_warning("the keeper did not hear that the store ends, so it is killed");
  if (const Status killed = keeper_.kill(); !killed.is_ok()) log_error(killed.to_string());
}

}  // namespace entrepot
