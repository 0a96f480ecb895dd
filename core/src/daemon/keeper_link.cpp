#include "daemon/keeper_link.h"

#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/process.h"
#include "os/socket.h"
#include "os/spawn.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kKeeperGraceNs = kSecondNs;     // for a keeper whose channel broke to exit by itself
constexpr std::uint64_t kStartNs = 10 * kSecondNs;      // for a new keeper to report that it is ready
constexpr std::uint64_t kAloneRetryNs = kSecondNs;      // between two attempts to start one
constexpr std::uint64_t kKillRetryNs = 10 * kSecondNs;  // between two tries to kill one
constexpr std::uint64_t kPollNs = kSecondNs / 50;       // polling interval for a process without a pidfd
constexpr std::uint64_t kShutdownSendMs = 5'000;        // for the keeper's socket to accept the last message
constexpr int kChannelInKeeper = 3;

}  // namespace

KeeperLink::KeeperLink(EventLoop& loop, UniqueFd channel, std::vector<std::string> keeper_arguments,
                       std::uint64_t upgrade_ns)
    : loop_(loop),
      channel_(std::move(channel)),
      state_timer_(reporting_timer([this](std::uint64_t now_ns) { on_state_timeout(now_ns); })),
      send_timer_(reporting_timer([this](std::uint64_t) { send(); })),
      upgrade_timer_(reporting_timer([this](std::uint64_t) { on_upgrade_timeout(); })),
      poll_timer_(reporting_timer([this](std::uint64_t now_ns) { poll_keeper(now_ns); })),
      keeper_arguments_(std::move(keeper_arguments)),
      upgrade_ns_(upgrade_ns) {}

EventLoop::Timer KeeperLink::reporting_timer(Timers::Callback act) {
  return loop_.timer([this, act = std::move(act)](std::uint64_t now_ns) {
    act(now_ns);
    report_progress();
  });
}

void KeeperLink::enter(State state, std::uint64_t timeout_ns) {
  state_ = state;
  state_timer_.arm(timeout_ns == kNoDeadline ? kNoDeadline : os::monotonic_ns() + timeout_ns);
}

Status KeeperLink::take_over() {
  while (true) {
    ASSIGN_OR_RETURN(ReceivedMessage received, channel_.receive(os::Deadline::never()));
    if (received.message.type == KeeperMessageType::kRestored) {
      keeper_pid_ = static_cast<std::uint32_t>(received.message.number);
      break;
    }
    if (received.message.type != KeeperMessageType::kRestore || !received.fd.valid()) {
      return Status(Code::kInternal,
                    concat("the keeper sent message type ", received.message.type, " instead of its descriptors"));
    }
    descriptors_.insert_or_assign(received.message.tag(), std::move(received.fd));
  }
  keeper_ = os::ProcessHandle::of_parent(static_cast<std::int32_t>(keeper_pid_));
  RETURN_IF_ERROR(watch());
  if (keeper_.has_exited()) {
    log_warning("keeper ", keeper_pid_, " exited after sending its descriptors; starting another");
    keeper_ended();
  }
  return Status::ok();
}

Status KeeperLink::watch() {
  watches_write_ = false;
  ASSIGN_OR_RETURN(channel_watch_, loop_.watch(channel_.fd(), Interest::kRead,
                                               [this](const os::Ready& ready) { on_channel_ready(ready); }));
  if (keeper_.fd() < 0) {
    poll_timer_.arm(os::monotonic_ns() + kPollNs);
    return Status::ok();
  }
  ASSIGN_OR_RETURN(keeper_watch_,
                   loop_.watch(keeper_.fd(), Interest::kRead, [this](const os::Ready&) { on_keeper_ready(); }));
  return Status::ok();
}

void KeeperLink::hold(const DescriptorTag& tag, UniqueFd fd) {
  if (may_restore()) {
    static_cast<void>(channel_.cancel_hold(tag));  // of a descriptor that this one replaces
    channel_.post(keeper_message(KeeperMessageType::kHold, tag), fd.get());
  }
  descriptors_.insert_or_assign(tag, std::move(fd));
  send();
}

bool KeeperLink::is_held_by_keeper(const DescriptorTag& tag) const {
  // A keeper that is being filled, or does not exist, starts no daemon; one that is being ended still could.
  return (state_ != State::kLinked && state_ != State::kEnding) || !channel_.is_unsent(tag);
}

void KeeperLink::drop(const DescriptorTag& tag) {
  if (!descriptors_.contains(tag)) return;
  if (may_restore() && !channel_.cancel_hold(tag)) channel_.post(keeper_message(KeeperMessageType::kDrop, tag));
  descriptors_.erase(tag);
  send();
}

int KeeperLink::fd(const DescriptorTag& tag) const {
  const auto match = descriptors_.find(tag);
  return match == descriptors_.end() ? -1 : match->second.get();
}

void KeeperLink::on_channel_ready(const os::Ready& ready) {
  if (keeper_.has_exited()) {
    keeper_ended();  // its end first: earlier messages are then meaningless
  } else {
    if (ready.writable) send();
    if (ready.readable || ready.hangup) take_messages();
  }
  report_progress();
}

void KeeperLink::on_keeper_ready() {
  if (keeper_.has_exited()) keeper_ended();
  report_progress();
}

void KeeperLink::report_progress() const {
  if (on_progress_) on_progress_();
}

void KeeperLink::take_messages() {
  while (channel_.is_open() && state_ != State::kEnding) {
    const auto received = channel_.receive();
    if (received.code() == Code::kTimeout) return;
    if (!received.is_ok()) return on_channel_lost(received.status());
    handle_message(received->message);
  }
}

void KeeperLink::handle_message(const KeeperMessage& message) {
  if (message.type == KeeperMessageType::kRestored && state_ == State::kStarting) return fill();
  if (message.type == KeeperMessageType::kAck) return take_ack(message.number);
  if (message.type == KeeperMessageType::kLogDropped) {
    keeper_log_lines_dropped_ = message.number;
    return;
  }
  log_error("the keeper sent message type ", message.type, " unexpectedly");
}

void KeeperLink::send() {
  if (!takes_messages()) return;
  Status flushed = channel_.flush();
  if (flushed.is_ok() && state_ == State::kFilling && channel_.all_sent()) {
    // Only now, so that what was published meanwhile is included; from here on is_held_by_keeper() is checked for each.
    state_ = State::kLinked;
    channel_.post(keeper_message(KeeperMessageType::kRestored));
    flushed = channel_.flush();
  }
  send_timer_.arm(channel_.retry_at_ns() == 0 ? kNoDeadline : channel_.retry_at_ns());
  if (!flushed.is_ok()) return on_channel_lost(flushed);
  if (channel_.wants_write() != watches_write_) {
    watches_write_ = channel_.wants_write();
    const Status changed = channel_watch_.change(watches_write_ ? Interest::kReadAndWrite : Interest::kRead);
    if (!changed.is_ok()) return on_channel_lost(changed);
  }
  // By a timer, because the requester that is answered may be the connection that is being processed.
  if (upgrade_ && upgrade_->gave_up && !channel_.has_unsent_upgrade()) upgrade_timer_.arm(0);
  const bool is_new = static_cast<std::int32_t>(keeper_pid_) != keeper_.pid();
  if (state_ == State::kLinked && is_new && channel_.all_sent()) {
    keeper_pid_ = static_cast<std::uint32_t>(keeper_.pid());
    log_info("keeper ", keeper_pid_, " started and holds ", descriptors_.size(), " descriptors");
  }
}

// The channel is unusable; the process may be alive, and is replaced only once it has ended.
void KeeperLink::on_channel_lost(const Status& why) {
  if (state_ == State::kEnding || state_ == State::kAlone) return;
  if (keeper_.has_exited()) return keeper_ended();
  log_warning("lost contact with keeper ", keeper_.pid(), " (", why.message(), "): it is replaced when it exits");
  end_keeper(kKeeperGraceNs);
}

void KeeperLink::end_keeper(std::uint64_t grace_ns) {
  enter(State::kEnding, grace_ns);
  send_timer_.disarm();
  channel_watch_.reset();  // it would be readable forever
}

void KeeperLink::keeper_ended() {
  const bool was_linked = state_ == State::kLinked || state_ == State::kEnding;
  if (state_ == State::kLinked) log_warning("keeper ", keeper_.pid(), " exited; starting another");
  channel_watch_.reset();
  keeper_watch_.reset();
  send_timer_.disarm();
  poll_timer_.disarm();
  channel_.close();
  keeper_log_lines_dropped_ = 0;
  keeper_ = os::ProcessHandle();
  while (os::reap()) {  // it is our child if we started it after an earlier one died
  }
  finish_upgrade(Status(Code::kStoreUnavailable, "the keeper exited during the upgrade: try again", true));
  if (was_linked) {
    start_keeper();
  } else {
    log_error("the new keeper exited immediately; until another one runs, the store is lost if this daemon dies");
    keeper_pid_ = 0;
    enter(State::kAlone, kAloneRetryNs);
  }
  if (hand_over_failed_) std::exchange(hand_over_failed_, nullptr)();
}

void KeeperLink::start_keeper() {
  const Status started = spawn_keeper();
  if (started.is_ok()) return enter(State::kStarting, kStartNs);
  log_error("cannot start a keeper, so the store is lost if this daemon dies: ", started.to_string());
  keeper_pid_ = 0;
  enter(State::kAlone, kAloneRetryNs);
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
    channel_watch_.reset();
    poll_timer_.disarm();
    channel_.close();
    keeper_ = os::ProcessHandle();
    return watched;
  }
  return Status::ok();
}

void KeeperLink::fill() {
  enter(State::kFilling, kNoDeadline);
  for (const auto& [tag, fd] : descriptors_)
    channel_.post(keeper_message(KeeperMessageType::kHold, tag), fd.get());
  send();
}

void KeeperLink::on_state_timeout(std::uint64_t now_ns) {
  if (state_ == State::kAlone) return start_keeper();
  if (state_ == State::kStarting) {
    log_error("the new keeper (process ", keeper_.pid(), ") does not respond: terminating it and starting another");
    end_keeper(kNoDeadline);
  }
  if (state_ != State::kEnding) return;
  if (const Status killed = keeper_.kill(); !killed.is_ok()) {
    log_error("cannot kill keeper ", keeper_.pid(), ", so it is not replaced until it exits: ", killed.to_string());
    state_timer_.arm(now_ns + kKillRetryNs);
  }
}

void KeeperLink::on_upgrade_timeout() {
  if (!upgrade_ || !takes_messages()) return;  // a keeper that is being ended could still run it: see keeper_ended()
  if (!upgrade_->gave_up && !channel_.cancel_upgrade()) {
    upgrade_->gave_up = true;
    channel_.post(keeper_message(KeeperMessageType::kUpgrade));  // without a program: cancels
    return send();                                               // which arms the timer again
  }
  if (channel_.has_unsent_upgrade()) return;
  finish_upgrade(Status(Code::kTimeout,
                        concat("the keeper (process ", keeper_pid_,
                               ") does not respond, so nothing was changed: it may be "
                               "stopped; try again when it runs"),
                        true));
}

void KeeperLink::poll_keeper(std::uint64_t now_ns) {
  if (keeper_.has_exited()) return keeper_ended();
  poll_timer_.arm(now_ns + kPollNs);
}

void KeeperLink::upgrade(UniqueFd program, Done done) {
  if (state_ != State::kLinked) {
    return done(
        Status(Code::kStoreUnavailable, "the store currently has no keeper, which an upgrade needs: try again"));
  }
  if (upgrade_) return done(Status(Code::kStoreUnavailable, "another upgrade is in progress: try again", true));
  upgrade_ = Upgrade{next_upgrade_++, std::move(done)};
  upgrade_timer_.arm(os::monotonic_ns() + upgrade_ns_);
  channel_.post(keeper_message(KeeperMessageType::kUpgrade, {DescriptorKind::kListenSocket, upgrade_->number}),
                std::move(program));
  send();
}

// Late answers are ignored: once a cancellation was sent, it follows the request that the keeper answered.
void KeeperLink::take_ack(std::uint64_t number) {
  if (!upgrade_ || upgrade_->number != number) return;
  if (upgrade_->gave_up && !channel_.cancel_upgrade()) return;
  finish_upgrade(Status::ok());
}

void KeeperLink::hand_over(std::function<void()> failed) {
  if (state_ != State::kLinked && state_ != State::kEnding) return failed();  // it ended since it had the program
  hand_over_failed_ = std::move(failed);
  if (state_ == State::kEnding) return;
  channel_.post(keeper_message(KeeperMessageType::kHandOver));
  send();
}

void KeeperLink::finish_upgrade(const Status& status) {
  if (!upgrade_) return;
  const Done done = std::move(upgrade_->done);
  upgrade_.reset();
  upgrade_timer_.disarm();
  done(status);
}

// A keeper that is being started takes it for granted.
void KeeperLink::send_ready() {
  if (!takes_messages()) return;
  channel_.post(keeper_message(KeeperMessageType::kReady));
  send();
}

void KeeperLink::send_shutdown() {
  if (!takes_messages()) return;
  channel_.post(keeper_message(KeeperMessageType::kShutdown));
  const auto deadline = os::Deadline::after_ms(kShutdownSendMs);
  Status sent = channel_.flush();
  while (sent.is_ok() && !channel_.all_sent()) {
    const auto writable = os::wait_writable(channel_.fd(), deadline);
    if (!writable.is_ok() || !*writable) break;
    if (channel_.retry_at_ns() != 0) os::pause_ms(1);
    sent = channel_.flush();
  }
  if (channel_.all_sent()) return;
  log_warning("the keeper did not receive the shutdown message; killing it");
  if (const Status killed = keeper_.kill(); !killed.is_ok()) log_error(killed.to_string());
}

}  // namespace entrepot
