#include "daemon/keeper.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "daemon/address.h"
#include "daemon/takeover.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/process.h"
#include "os/program.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kGraceNs = 1'000'000'000;  // for a daemon that closed its channel to exit by itself
constexpr std::uint64_t kEndNs = 5'000'000'000;    // the same, when the store ends
constexpr std::uint64_t kWaitNs = 10'000'000'000;  // between two log lines about a daemon that does not exit
constexpr std::uint64_t kLookMs = 20;              // polling interval for a process without a pidfd
constexpr int kChannelInChild = 3;
constexpr int kReadyInChild = 4;
constexpr std::uint64_t kChannelKey = 1;
constexpr std::uint64_t kSignalKey = 2;
constexpr std::uint64_t kProcessKey = 3;

}  // namespace

Status Keeper::prepare() {
  set_log_role("keeper");
  RETURN_IF_ERROR(os::ignore_sigpipe());
  ASSIGN_OR_RETURN(signals_, os::create_signal_fd({SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}));
  return Status::ok();
}

int Keeper::run_new(UniqueFd listening, UniqueFd address_lock) {
  held_.emplace(HeldTag{HeldKind::kListenSocket, 0}, std::move(listening));
  held_.emplace(HeldTag{HeldKind::kAddressLock, 0}, std::move(address_lock));
  Status status = prepare();
  if (status.is_ok()) status = start_daemon();
  if (!status.is_ok()) {
    log_error("cannot start: ", status.to_string());
    return end(1);
  }
  return watch();
}

int Keeper::run_for_daemon(UniqueFd channel, std::int32_t daemon_pid) {
  os::outlive_parent();
  channel_ = KeeperChannel(std::move(channel));
  daemon_ = os::ProcessHandle::of_parent(daemon_pid);
  whole_ = false;
  if (const Status status = prepare(); !status.is_ok()) {
    log_error("cannot take over: ", status.to_string());
    return 1;  // the daemon sees end-of-file and tries again
  }
  const auto pid = static_cast<std::uint64_t>(os::current_pid());
  channel_.post(keeper_message(KeeperVerb::kRestored, {HeldKind::kListenSocket, pid}));
  if (daemon_.gone() || !channel_.flush().is_ok()) {
    log_error("daemon ", daemon_pid, ", which started this keeper, is gone");
    return 1;
  }
  log_info("took over from a keeper that died, for daemon ", daemon_pid);
  return watch();
}

int Keeper::run_estate(UniqueFd list) {
  Result<Estate> estate = take_estate(std::move(list));
  Status status = estate.status();
  if (status.is_ok()) {
    held_ = std::move(estate->held);
    former_ = std::move(estate->former);
    status = prepare();
  }
  if (status.is_ok()) {
    log_info("took over from another program, with ", held_.size(), " descriptors");
    status = start_daemon();
  }
  if (!status.is_ok()) {
    log_error("cannot take over: ", status.to_string());
    go_back();
    return end(1);
  }
  return watch();
}

int Keeper::watch() {
  while (true) {
    if (channel_.is_open()) {
      if (const Status watched = watch_daemon(); !watched.is_ok()) {
        log_error("cannot watch the daemon: ", watched.to_string());
        return end(1);
      }
      const std::int32_t daemon_pid = daemon_.pid();
      if (goodbye_ || stopping_) return end(0);
      if (!whole_) {
        // It must not remove the socket: another store may already use its name.
        log_error("daemon ", daemon_pid, " died before it had handed its store over, so that is gone");
        return 1;
      }
      if (next_.valid()) {
        hand_over(std::exchange(next_, UniqueFd()), true);
      } else {
        log_warning("daemon ", daemon_pid, " died; ", held_.size(), " descriptors are kept");
        if (os::monotonic_ns() - started_ns_ <= kYoungNs) go_back();
        former_.reset();  // a program that has worked is kept
      }
    }
    if (too_many_deaths()) {
      log_error("the daemon died ", kMaxDeaths, " times, each within a second of its start, in ",
                kDeathWindowNs / 1'000'000'000ULL,
                " s: giving up; what it held in memory is gone. The lines above say why it died");
      return end(1);
    }
    // A signal ends the wait: whoever wants the store gone should not have to wait for a new daemon.
    const auto woken = os::wait_readable(signals_.get(), os::Deadline::after_ms(backoff_ms_));
    if (woken.is_ok() && *woken) pass_signal();
    if (stopping_) return end(0);
    backoff_ms_ = std::min(backoff_ms_ * 2, kMaxBackoffMs);
    if (const Status started = start_daemon(); !started.is_ok()) {
      log_error("cannot start the daemon again: ", started.to_string());
      started_ns_ = os::monotonic_ns();  // counts as an early death, and is retried
    }
  }
}

// Returns once the daemon has ended and everything it sent is read.
Status Keeper::watch_daemon() {
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  bool watches_write = channel_.wants_write();
  RETURN_IF_ERROR(poller.add(channel_.fd(), kChannelKey, true, watches_write));
  RETURN_IF_ERROR(poller.add(signals_.get(), kSignalKey, true, false));
  if (daemon_.fd() >= 0) RETURN_IF_ERROR(poller.add(daemon_.fd(), kProcessKey, true, false));
  while (true) {
    if (channel_.wants_write() != watches_write) {
      watches_write = !watches_write;
      RETURN_IF_ERROR(poller.change(channel_.fd(), kChannelKey, true, watches_write));
    }
    const bool looks = daemon_.fd() < 0 || channel_.again_ns() != 0;
    ASSIGN_OR_RETURN(const auto ready, poller.wait(looks ? os::Deadline::after_ms(kLookMs) : os::Deadline::never()));
    if (!take_events(ready)) return end_daemon();
  }
}

bool Keeper::take_events(const std::vector<os::Ready>& ready) {
  bool alive = daemon_.fd() >= 0 || !daemon_.gone();
  for (const os::Ready& one : ready) {
    if (one.key == kSignalKey) pass_signal();
    if (one.key == kProcessKey) alive = false;
    if (one.key == kChannelKey && (one.readable || one.hangup) && !take_messages()) alive = false;
  }
  tell_dropped_lines();
  return alive && send();
}

// A daemon whose channel closed exits within moments. Otherwise it is killed: it could continue, and nobody else may
// have the store before it has ended.
Status Keeper::end_daemon() {
  const bool polite = goodbye_ || stopping_;
  const std::uint64_t began = os::monotonic_ns();
  std::uint64_t next_kill = began + (polite ? kEndNs : kGraceNs);
  bool killed = false;
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  RETURN_IF_ERROR(poller.add(signals_.get(), kSignalKey, true, false));
  if (daemon_.fd() >= 0) RETURN_IF_ERROR(poller.add(daemon_.fd(), kProcessKey, true, false));
  while (!daemon_.gone()) {
    const std::uint64_t now = os::monotonic_ns();
    if (now >= next_kill) {
      // Once killed, it executes nothing more: a store that ends anyway does not wait for pending disk I/O to release
      // it.
      if (killed && (goodbye_ || stopping_)) break;
      log_warning("daemon ", daemon_.pid(), killed ? " is killed, and not gone yet" : " does not end, so it is killed");
      if (const Status sent = daemon_.kill(); !sent.is_ok()) log_error(sent.to_string());
      killed = true;
      next_kill = now + kWaitNs;
    }
    const std::uint64_t wait_ms = daemon_.fd() < 0 ? kLookMs : (next_kill - now) / 1'000'000 + 1;
    ASSIGN_OR_RETURN(const auto ready, poller.wait(os::Deadline::after_ms(wait_ms)));
    for (const os::Ready& one : ready) {
      if (one.key == kSignalKey) pass_signal();
    }
  }
  static_cast<void>(take_messages());
  channel_.close();
  reap_children();
  return Status::ok();
}

Status Keeper::start_daemon() {
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kSeqPacket));
  os::SpawnOptions spawn;
  spawn.program = "/proc/self/exe";
  spawn.argv = {"entrepotd", "--role=daemon", concat("--keeper-fd=", kChannelInChild)};
  spawn.fds = {{pair.second.get(), kChannelInChild}};
  spawn.ends_with_parent = true;
  if (options_.follows_killed) spawn.argv.emplace_back("--follows-killed=1");
  if (options_.ready_fd >= 0) {
    spawn.argv.push_back(concat("--ready-fd=", kReadyInChild));
    spawn.fds.emplace_back(options_.ready_fd, kReadyInChild);
  }
  spawn.argv.insert(spawn.argv.end(), options_.daemon_arguments.begin(), options_.daemon_arguments.end());
  ASSIGN_OR_RETURN(os::Child child, os::spawn(spawn));
  daemon_ = os::ProcessHandle(std::move(child));
  daemon_is_stopped_ = false;
  started_ns_ = os::monotonic_ns();
  channel_ = KeeperChannel(std::move(pair.first));
  if (options_.ready_fd >= 0) {
    // Only the first daemon announces itself; a waiting launcher must see end-of-file if that one fails.
    UniqueFd(std::exchange(options_.ready_fd, -1)).reset();
  }
  restore();
  return Status::ok();
}

// Messages are queued and sent as the daemon reads them; if it dies meanwhile, watch() notices it like any other death.
void Keeper::restore() {
  for (const auto& [tag, fd] : held_)
    channel_.post(keeper_message(KeeperVerb::kRestore, tag), fd.get());
  const HeldTag own{HeldKind::kListenSocket, static_cast<std::uint64_t>(os::current_pid())};
  channel_.post(keeper_message(KeeperVerb::kRestored, own));
  told_dropped_lines_ = 0;
  tell_dropped_lines();
}

// Sent only when something else woke us: nobody waits for the figure.
void Keeper::tell_dropped_lines() {
  const std::uint64_t dropped = log_lines_dropped();
  if (dropped == told_dropped_lines_) return;
  channel_.post(keeper_message(KeeperVerb::kLogDropped, {HeldKind::kListenSocket, dropped}));
  told_dropped_lines_ = dropped;
}

// Returns only on failure; then this program continues.
void Keeper::hand_over(UniqueFd program, bool may_come_back) {
  UniqueFd self;
  if (may_come_back) {
    if (Result<UniqueFd> opened = os::open_program("/proc/self/exe"); opened.is_ok()) self = opened.take();
  }
  log_info("another program takes over, with ", held_.size(), " descriptors");
  const Status failed = become(program, options_.daemon_arguments, held_, self);
  log_error("the store goes on with the program that it had: ", failed.to_string());
}

void Keeper::go_back() {
  if (!former_.valid()) return;
  log_error("the first daemon after an upgrade ended at once: back to the program before");
  hand_over(std::exchange(former_, UniqueFd()), false);
}

bool Keeper::take_messages() {
  while (true) {
    auto received = channel_.receive();
    if (received.code() == Code::kTimeout) return true;
    if (!received.is_ok()) {
      if (received.code() != Code::kStoreUnavailable) log_error("channel: ", received.status().to_string());
      return false;
    }
    take(received.take());
  }
}

void Keeper::take(ReceivedMessage received) {
  const HeldTag tag = received.message.tag();
  switch (received.message.verb) {
    case KeeperVerb::kHold:
      held_.insert_or_assign(tag, std::move(received.fd));
      return;
    case KeeperVerb::kDrop:
      held_.erase(tag);
      return;
    case KeeperVerb::kGoodbye:
      goodbye_ = true;
      return;
    case KeeperVerb::kUpgrade:
      next_ = std::move(received.fd);
      if (next_.valid()) channel_.post(keeper_message(KeeperVerb::kAck, tag));
      return;
    case KeeperVerb::kRestored:
      whole_ = true;
      return;
    case KeeperVerb::kAck:
    case KeeperVerb::kRestore:
    case KeeperVerb::kLogDropped:
      break;
  }
  log_error("channel: the daemon sent verb ", received.message.verb, ", which is the keeper's");
}

bool Keeper::send() {
  const Status flushed = channel_.flush();
  if (flushed.is_ok()) return true;
  if (flushed.code() != Code::kStoreUnavailable) log_error("channel: ", flushed.to_string());
  return false;
}

void Keeper::pass_signal() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      tell_stopped();
      reap_children();
      continue;
    }
    if (*signal != SIGUSR2) stopping_ = true;
    if (!channel_.is_open()) continue;  // no daemon at the moment: watch() ends
    if (const Status sent = daemon_.send_signal(*signal == SIGUSR2 ? SIGUSR2 : SIGTERM); !sent.is_ok()) {
      log_error("the signal cannot be passed on: ", sent.to_string());
    }
  }
}

// Works only for our own child. It is left alone, but the log tells why nobody is answered.
void Keeper::tell_stopped() {
  const std::optional<bool> stopped = daemon_.pid() == 0 ? std::nullopt : os::newly_stopped(daemon_.pid());
  if (!stopped || *stopped == daemon_is_stopped_) return;
  daemon_is_stopped_ = *stopped;
  if (*stopped) {
    log_warning("daemon ", daemon_.pid(),
                " is stopped (SIGSTOP, a debugger) and answers nobody until it goes on: kill ", "-CONT ",
                daemon_.pid());
  } else {
    log_warning("daemon ", daemon_.pid(), " goes on, and answers again");
  }
}

// Reaps the daemon, if it is our child, and orphans, if this is a container's first process.
void Keeper::reap_children() {
  while (const auto ended = os::reap()) {
    if (ended->pid == daemon_.pid()) log_info("daemon ", ended->pid, " ended: ", ended->to_string());
  }
}

bool Keeper::too_many_deaths() {
  const std::uint64_t now = os::monotonic_ns();
  std::erase_if(deaths_, [&](std::uint64_t at) { return now - at > kDeathWindowNs; });
  if (deaths_.empty()) backoff_ms_ = kMinBackoffMs;
  // A daemon that worked for a while did not die of what it adopted, so the next one may work as well.
  if (now - started_ns_ > kYoungNs) {
    backoff_ms_ = kMinBackoffMs;
    return false;
  }
  deaths_.push_back(now);
  return deaths_.size() >= kMaxDeaths;
}

int Keeper::end(int code) {
  const auto lock = held_.find({HeldKind::kAddressLock, 0});
  if (code == 0 && lock != held_.end()) clear_address(lock->second.get());
  if (const Status removed = os::remove_file(options_.socket_path); !removed.is_ok()) {
    log_warning("the socket is left behind: ", removed.to_string());
  }
  log_info("keeper ends with code ", code);
  return code;
}

}  // namespace entrepot
