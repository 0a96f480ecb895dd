#include "daemon/keeper.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "daemon/takeover.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/process.h"
#include "os/program.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kRestoreMs = 20'000;
constexpr std::uint64_t kAckMs = 5'000;
constexpr std::uint64_t kEndMs = 5'000;  // for a daemon that said goodbye to be gone
constexpr int kChannelInChild = 3;
constexpr int kReadyInChild = 4;
constexpr std::uint64_t kChannelKey = 1;
constexpr std::uint64_t kSignalKey = 2;

}  // namespace

Status Keeper::prepare() {
  set_log_role("keeper");
  RETURN_IF_ERROR(os::ignore_sigpipe());
  ASSIGN_OR_RETURN(signals_, os::create_signal_fd({SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}));
  return Status::ok();
}

int Keeper::run_new(UniqueFd listening) {
  held_.emplace(HeldTag{HeldKind::kListenSocket, 0}, std::move(listening));
  Status status = prepare();
  if (status.is_ok()) status = start_daemon();
  if (!status.is_ok()) {
    log_error("cannot start: ", status.to_string());
    return end(1);
  }
  return watch();
}

int Keeper::run_for_daemon(UniqueFd channel, std::int32_t daemon_pid) {
  channel_ = std::move(channel);
  daemon_pid_ = daemon_pid;
  whole_ = false;
  if (const Status status = prepare(); !status.is_ok()) {
    log_error("cannot take over: ", status.to_string());
    return 1;  // the daemon sees end-of-file and tries again
  }
  const auto ready =
      keeper_message(KeeperVerb::kRestored, {HeldKind::kListenSocket, static_cast<std::uint64_t>(os::current_pid())});
  if (const Status status = send_keeper_message(channel_.get(), ready, -1, os::Deadline::after_ms(kAckMs));
      !status.is_ok()) {
    log_error("the daemon that started this keeper is gone: ", status.to_string());
    return 1;
  }
  log_info("took over from a keeper that died, for daemon ", daemon_pid_);
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
    auto poller = os::Poller::create();
    Status status = poller.status();
    if (status.is_ok()) status = poller->add(channel_.get(), kChannelKey, true, false);
    if (status.is_ok()) status = poller->add(signals_.get(), kSignalKey, true, false);
    if (!status.is_ok()) {
      log_error("cannot watch the daemon: ", status.to_string());
      return end(1);
    }
    bool alive = true;
    while (alive) {
      auto ready = poller->wait(os::Deadline::never());
      if (!ready.is_ok()) {
        log_error("cannot watch the daemon: ", ready.status().to_string());
        return end(1);
      }
      for (const os::Ready& one : *ready) {
        if (one.key == kSignalKey) pass_signal();
        if (one.key == kChannelKey && !take_message()) alive = false;
      }
    }
    channel_.reset();
    reap_children();
    if (goodbye_ || stopping_) {
      wait_for_child();
      return end(0);
    }
    if (!whole_) {
      // It has no right to the socket's name: another store may be there already.
      log_error("daemon ", daemon_pid_, " died before it had handed its store over, so that is gone");
      return 1;
    }
    if (next_.valid()) {
      hand_over(std::exchange(next_, UniqueFd()), true);
    } else {
      log_warning("daemon ", daemon_pid_, " died; ", held_.size(), " descriptors are kept");
      if (os::monotonic_ns() - started_ns_ <= kYoungNs) go_back();
      former_.reset();  // what has worked once is not given up
    }
    if (too_many_deaths()) {
      log_error("the daemon died ", kMaxDeaths, " times, each within a second of its start, in ",
                kDeathWindowNs / 1'000'000'000ULL,
                " s: giving up; what it held in memory is gone. The lines above say why it died");
      return end(1);
    }
    // A signal ends the wait: whoever wants the store gone does not wait for a daemon that would start.
    const auto woken = os::wait_readable(signals_.get(), os::Deadline::after_ms(backoff_ms_));
    if (woken.is_ok() && *woken) pass_signal();
    if (stopping_) return end(0);
    backoff_ms_ = std::min(backoff_ms_ * 2, kMaxBackoffMs);
    if (const Status started = start_daemon(); !started.is_ok()) {
      log_error("cannot start the daemon again: ", started.to_string());
      return end(1);
    }
  }
}

Status Keeper::start_daemon() {
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kSeqPacket));
  os::SpawnOptions spawn;
  spawn.program = "/proc/self/exe";
  spawn.argv = {"entrepotd", "--role=daemon", concat("--keeper-fd=", kChannelInChild)};
  spawn.fds = {{pair.second.get(), kChannelInChild}};
  if (options_.ready_fd >= 0) {
    spawn.argv.push_back(concat("--ready-fd=", kReadyInChild));
    spawn.fds.emplace_back(options_.ready_fd, kReadyInChild);
  }
  spawn.argv.insert(spawn.argv.end(), options_.daemon_arguments.begin(), options_.daemon_arguments.end());
  ASSIGN_OR_RETURN(os::Child child, os::spawn(spawn));
  daemon_pid_ = child.pid;
  started_ns_ = os::monotonic_ns();
  has_child_ = true;
  channel_ = std::move(pair.first);
  pair.second.reset();
  if (options_.ready_fd >= 0) {
    // Only the first daemon announces itself; a launcher that waits must see end-of-file if that one fails.
    UniqueFd(std::exchange(options_.ready_fd, -1)).reset();
  }
  const Status restored = restore(channel_.get());
  // A daemon that died meanwhile is noticed by watch(), like any other death.
  if (!restored.is_ok() && restored.code() != Code::kStoreUnavailable) return restored;
  return Status::ok();
}

Status Keeper::restore(int channel) {
  const auto deadline = os::Deadline::after_ms(kRestoreMs);
  for (const auto& [tag, fd] : held_) {
    RETURN_IF_ERROR(send_keeper_message(channel, keeper_message(KeeperVerb::kRestore, tag), fd.get(), deadline));
  }
  const HeldTag own{HeldKind::kListenSocket, static_cast<std::uint64_t>(os::current_pid())};
  return send_keeper_message(channel, keeper_message(KeeperVerb::kRestored, own), -1, deadline);
}

// Returns only if it failed: then this program goes on.
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

bool Keeper::take_message() {
  auto received = receive_keeper_message(channel_.get(), os::Deadline::after_ms(0));
  if (!received.is_ok()) {
    if (received.code() == Code::kTimeout) return true;
    if (received.code() != Code::kStoreUnavailable) log_error("channel: ", received.status().to_string());
    return false;
  }
  const HeldTag tag = received->message.tag();
  switch (received->message.verb) {
    case KeeperVerb::kHold: {
      held_.insert_or_assign(tag, std::move(received->fd));
      const Status acked = send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kAck, tag), -1,
                                               os::Deadline::after_ms(kAckMs));
      return acked.is_ok();
    }
    case KeeperVerb::kDrop:
      held_.erase(tag);
      return true;
    case KeeperVerb::kGoodbye:
      goodbye_ = true;
      return true;
    case KeeperVerb::kUpgrade: {
      next_ = std::move(received->fd);
      const Status acked =
          send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kAck), -1, os::Deadline::after_ms(kAckMs));
      return acked.is_ok();
    }
    case KeeperVerb::kRestored:
      whole_ = true;
      return true;
    case KeeperVerb::kAck:
    case KeeperVerb::kRestore:
      break;
  }
  log_error("channel: the daemon sent verb ", received->message.verb, ", which is the keeper's");
  return true;
}

void Keeper::pass_signal() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      reap_children();
      continue;
    }
    if (*signal != SIGUSR2) stopping_ = true;
    if (!channel_.valid()) continue;  // no daemon just now: watch() ends
    if (const Status sent = os::send_signal(daemon_pid_, *signal == SIGUSR2 ? SIGUSR2 : SIGTERM); !sent.is_ok()) {
      log_error("cannot pass the signal on to daemon ", daemon_pid_, ": ", sent.to_string());
    }
  }
}

void Keeper::reap_children() {
  while (const auto ended = os::reap()) {
    if (ended->pid != daemon_pid_) continue;
    has_child_ = false;
    log_info("daemon ", ended->pid, " ended: ", ended->to_string());
  }
}

// Whoever waits for the keeper's end finds the store's memory free. A daemon that is not our child (it started us) is
// not waited for.
void Keeper::wait_for_child() {
  const auto deadline = os::Deadline::after_ms(kEndMs);
  while (has_child_ && !deadline.passed()) {
    const auto woken = os::wait_readable(signals_.get(), deadline);
    if (!woken.is_ok()) return;
    if (*woken) pass_signal();
  }
}

bool Keeper::too_many_deaths() {
  const std::uint64_t now = os::monotonic_ns();
  std::erase_if(deaths_, [&](std::uint64_t at) { return now - at > kDeathWindowNs; });
  if (deaths_.empty()) backoff_ms_ = kMinBackoffMs;
  // One that worked for a while did not die of what it adopted: the next one may do as well, whatever killed it.
  if (now - started_ns_ > kYoungNs) {
    backoff_ms_ = kMinBackoffMs;
    return false;
  }
  deaths_.push_back(now);
  return deaths_.size() >= kMaxDeaths;
}

int Keeper::end(int code) {
  if (const Status removed = os::remove_file(options_.socket_path); !removed.is_ok()) {
    log_warning("the socket is left behind: ", removed.to_string());
  }
  log_info("keeper ends with code ", code);
  return code;
}

}  // namespace entrepot
