#include "daemon/keeper.h"

#include <csignal>
#include <utility>

#include "base/text.h"
#include "daemon/address.h"
#include "daemon/takeover.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/program.h"
#include "os/socket.h"
#include "os/spawn.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kGraceNs = 1'000'000'000;  // for a daemon that closed its channel to exit by itself
constexpr std::uint64_t kEndNs = 5'000'000'000;    // the same, when the store ends
constexpr std::uint64_t kWaitNs = 10'000'000'000;  // between two log lines about a daemon that does not exit
constexpr std::uint64_t kPollMs = 20;              // polling interval for a process without a pidfd
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
  descriptors_.emplace(DescriptorTag{DescriptorKind::kListenSocket, 0}, std::move(listening));
  descriptors_.emplace(DescriptorTag{DescriptorKind::kAddressLock, 0}, std::move(address_lock));
  has_served_ = false;
  Status status = prepare();
  if (status.is_ok()) status = start_log_thread();
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
  has_all_descriptors_ = false;
  restarts_.ready();
  if (const Status status = prepare(); !status.is_ok()) {
    log_error("cannot take over: ", status.to_string());
    return 1;  // the daemon sees end-of-file and tries again
  }
  const auto pid = static_cast<std::uint64_t>(os::current_pid());
  channel_.post(keeper_message(KeeperMessageType::kRestored, {DescriptorKind::kListenSocket, pid}));
  if (daemon_.has_exited() || !channel_.flush().is_ok()) {
    log_error("daemon ", daemon_pid, ", which started this keeper, has exited");
    return 1;
  }
  log_info("took over from a dead keeper, for daemon ", daemon_pid);
  return watch();
}

int Keeper::run_handover(UniqueFd list) {
  Result<HandoverState> handover = read_handover(std::move(list));
  Status status = handover.status();
  if (status.is_ok()) {
    descriptors_ = std::move(handover->descriptors);
    previous_program_ = std::move(handover->previous_program);
    status = prepare();
  }
  if (status.is_ok()) {
  }
  if (!status.is_ok()) {
    log_error("cannot take over: ", status.to_string());
    roll_back();
    return end(1);
  }
  log_info("took over from another program, with ", descriptors_.size(), " descriptors");
  if (const Status started = start_daemon(); !started.is_ok()) {
    log_error("cannot start the daemon: ", started.to_string());
    roll_back();
    restarts_.started(os::monotonic_ns());  // counts as an early death: this process has the only copy of the store
  }
  return watch();
}

int Keeper::watch() {
  while (true) {
    if (channel_.is_open()) {
      if (const Status watched = watch_daemon(); !watched.is_ok()) {
        log_error("cannot monitor the daemon: ", watched.to_string());
        return end(1);
      }
      const std::int32_t daemon_pid = daemon_.pid();
      if (shutdown_announced_ || stopping_) return end(0);
      if (!has_all_descriptors_) {
        // It must not remove the socket: another store may already use its name.
        log_error("daemon ", daemon_pid, " died before handing over its store, which is lost");
        return 1;
      }
      if (successor_program_.valid()) {
        exec_program(std::exchange(successor_program_, UniqueFd()), true);
      } else {
        log_warning("daemon ", daemon_pid, " died; ", descriptors_.size(), " descriptors retained");
        if (restarts_.would_be_early(os::monotonic_ns())) {
          roll_back();
        } else {
          previous_program_.reset();  // a program that has worked is kept
        }
      }
    }
    if (!has_served_ && exit_code_ == kExitDaemonCannotStart) {
      log_error("the store cannot start. See the log lines above for the cause");
      return end(1);
    }
    if (!restarts_.may_restart(os::monotonic_ns())) {
      log_error("the daemon died ", RestartPolicy::kMaxDeaths,
                " times, each before it was ready or within a second of starting: giving up; objects that were only in "
                "memory are lost. See the log lines above for the cause");
      return end(1);
    }
    // A signal ends the wait: stopping a store must not have to wait for a new daemon.
    const auto woken = os::wait_readable(signals_.get(), os::Deadline::after_ms(restarts_.next_pause_ms()));
    if (woken.is_ok() && *woken) forward_signal();
    if (stopping_) return end(0);
    if (const Status started = start_daemon(); !started.is_ok()) {
      log_error("cannot restart the daemon: ", started.to_string());
      restarts_.started(os::monotonic_ns());  // counts as an early death, and is retried
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
    const bool polls = daemon_.fd() < 0 || channel_.retry_at_ns() != 0;
    ASSIGN_OR_RETURN(const auto ready, poller.wait(polls ? os::Deadline::after_ms(kPollMs) : os::Deadline::never()));
    if (!take_events(ready)) return end_daemon();
  }
}

bool Keeper::take_events(const std::vector<os::Ready>& ready) {
  bool alive = daemon_.fd() >= 0 || !daemon_.has_exited();
  for (const os::Ready& event : ready) {
    if (event.key == kSignalKey) forward_signal();
    if (event.key == kProcessKey) alive = false;
    if (event.key == kChannelKey && (event.readable || event.hangup) && !take_messages()) alive = false;
  }
  if (daemon_hands_over_) alive = false;
  report_dropped_lines();
  return alive && send();
}

// A daemon whose channel closed exits within moments. Otherwise it is killed: it could continue, and nobody else may
// have the store before it has ended.
Status Keeper::end_daemon() {
  const bool polite = shutdown_announced_ || stopping_;
  const std::uint64_t began = os::monotonic_ns();
  std::uint64_t next_kill = daemon_hands_over_ && !polite ? began : began + (polite ? kEndNs : kGraceNs);
  bool killed = false;
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  RETURN_IF_ERROR(poller.add(signals_.get(), kSignalKey, true, false));
  if (daemon_.fd() >= 0) RETURN_IF_ERROR(poller.add(daemon_.fd(), kProcessKey, true, false));
  while (!daemon_.has_exited()) {
    const std::uint64_t now = os::monotonic_ns();
    if (now >= next_kill) {
      // Once killed, it executes nothing more: a store that ends anyway does not wait for pending disk I/O to release
      // it.
      if (killed && (shutdown_announced_ || stopping_)) break;
      if (killed || !daemon_hands_over_) {
        log_warning("daemon ", daemon_.pid(),
                    killed ? " was killed but has not exited yet" : " does not exit; killing it");
      }
      if (const Status sent = daemon_.kill(); !sent.is_ok()) log_error(sent.to_string());
      killed = true;
      next_kill = now + kWaitNs;
    }
    const std::uint64_t wait_ms = daemon_.fd() < 0 ? kPollMs : (next_kill - now) / 1'000'000 + 1;
    ASSIGN_OR_RETURN(const auto ready, poller.wait(os::Deadline::after_ms(wait_ms)));
    for (const os::Ready& event : ready) {
      if (event.key == kSignalKey) forward_signal();
    }
  }
  static_cast<void>(take_messages());
  channel_.close();
  reap_children();
  daemon_hands_over_ = false;
  return Status::ok();
}

Status Keeper::start_daemon() {
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kSeqPacket));
  os::SpawnOptions spawn;
  spawn.program = "/proc/self/exe";
  spawn.argv = {"entrepotd", "--role=daemon", concat("--keeper-fd=", kChannelInChild)};
  spawn.fds = {{pair.second.get(), kChannelInChild}};
  spawn.ends_with_parent = true;
  if (options_.recovered_from_crash) spawn.argv.emplace_back("--recovered-from-crash=1");
  if (options_.ready_fd >= 0) {
    spawn.argv.push_back(concat("--ready-fd=", kReadyInChild));
    spawn.fds.emplace_back(options_.ready_fd, kReadyInChild);
  }
  spawn.argv.insert(spawn.argv.end(), options_.daemon_arguments.begin(), options_.daemon_arguments.end());
  ASSIGN_OR_RETURN(os::Child child, os::spawn(spawn));
  daemon_ = os::ProcessHandle(std::move(child));
  daemon_is_stopped_ = false;
  exit_code_.reset();
  restarts_.started(os::monotonic_ns());
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
  for (const auto& [tag, fd] : descriptors_)
    channel_.post(keeper_message(KeeperMessageType::kRestore, tag), fd.get());
  const DescriptorTag own{DescriptorKind::kListenSocket, static_cast<std::uint64_t>(os::current_pid())};
  channel_.post(keeper_message(KeeperMessageType::kRestored, own));
  reported_dropped_lines_ = 0;
  report_dropped_lines();
}

// Sent only when something else woke us: nobody waits for the figure.
void Keeper::report_dropped_lines() {
  const std::uint64_t dropped = log_lines_dropped();
  if (dropped == reported_dropped_lines_) return;
  channel_.post(keeper_message(KeeperMessageType::kLogDropped, {DescriptorKind::kListenSocket, dropped}));
  reported_dropped_lines_ = dropped;
}

// Returns only on failure; then this program continues.
void Keeper::exec_program(const UniqueFd& program, bool may_roll_back) {
  UniqueFd self;
  if (may_roll_back) {
    if (Result<UniqueFd> opened = os::open_program("/proc/self/exe"); opened.is_ok()) self = opened.take();
  }
  log_info("handing over to another program, with ", descriptors_.size(), " descriptors");
  const Status failed = exec_successor(program, options_.daemon_arguments, descriptors_, self);
  log_error("the upgrade failed, and the store continues with its previous program: ", failed.to_string());
}

void Keeper::roll_back() {
  if (!previous_program_.valid()) return;
  log_error("the first daemon after an upgrade exited immediately: reverting to the previous program");
  exec_program(previous_program_, false);
}

bool Keeper::take_messages() {
  while (true) {
    auto received = channel_.receive();
    if (received.code() == Code::kTimeout) return true;
    if (!received.is_ok()) {
      if (received.code() != Code::kStoreUnavailable) log_error("channel: ", received.status().to_string());
      return false;
    }
    handle_message(received.take());
  }
}

void Keeper::handle_message(ReceivedMessage received) {
  const DescriptorTag tag = received.message.tag();
  switch (received.message.type) {
    case KeeperMessageType::kHold:
      descriptors_.insert_or_assign(tag, std::move(received.fd));
      return;
    case KeeperMessageType::kDrop:
      descriptors_.erase(tag);
      return;
    case KeeperMessageType::kShutdown:
      shutdown_announced_ = true;
      return;
    case KeeperMessageType::kUpgrade:
      successor_program_ = std::move(received.fd);
      if (successor_program_.valid()) channel_.post(keeper_message(KeeperMessageType::kAck, tag));
      return;
    case KeeperMessageType::kReady:
      restarts_.ready();
      has_served_ = true;
      return;
    case KeeperMessageType::kRestored:
      has_all_descriptors_ = true;
      return;
    case KeeperMessageType::kHandOver:
      daemon_hands_over_ = true;
      return;
    case KeeperMessageType::kAck:
    case KeeperMessageType::kRestore:
    case KeeperMessageType::kLogDropped:
      break;
  }
  log_error("channel: the daemon sent message type ", received.message.type, ", which only a keeper sends");
}

bool Keeper::send() {
  const Status flushed = channel_.flush();
  if (flushed.is_ok()) return true;
  if (flushed.code() != Code::kStoreUnavailable) log_error("channel: ", flushed.to_string());
  return false;
}

void Keeper::forward_signal() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      report_stopped();
      reap_children();
      continue;
    }
    if (*signal != SIGUSR2) stopping_ = true;
    if (!channel_.is_open()) continue;  // no daemon at the moment: watch() ends
    if (const Status sent = daemon_.send_signal(*signal == SIGUSR2 ? SIGUSR2 : SIGTERM); !sent.is_ok()) {
      log_error("cannot forward the signal: ", sent.to_string());
    }
  }
}

// Works only for our own child. It is left alone, but the log tells why nobody is answered.
void Keeper::report_stopped() {
  const std::optional<bool> stopped = daemon_.pid() == 0 ? std::nullopt : os::newly_stopped(daemon_.pid());
  if (!stopped || *stopped == daemon_is_stopped_) return;
  daemon_is_stopped_ = *stopped;
  if (*stopped) {
    log_warning("daemon ", daemon_.pid(),
                " is stopped (SIGSTOP, a debugger) and does not respond until it is resumed: kill ", "-CONT ",
                daemon_.pid());
  } else {
    log_warning("daemon ", daemon_.pid(), " was resumed and responds again");
  }
}

// Reaps the daemon, if it is our child, and orphans, if this is a container's first process.
void Keeper::reap_children() {
  while (const auto ended = os::reap()) {
    if (ended->pid != daemon_.pid()) continue;
    log_info("daemon ", ended->pid, " exited: ", ended->to_string());
    if (!ended->signalled) exit_code_ = ended->code;
  }
}

int Keeper::end(int code) {
  const auto lock = descriptors_.find({DescriptorKind::kAddressLock, 0});
  if (code == 0 && lock != descriptors_.end()) clear_address(lock->second.get());
  if (const Status removed = os::remove_file(options_.socket_path); !removed.is_ok()) {
    log_warning("cannot remove the socket: ", removed.to_string());
  }
  log_info("keeper exits with code ", code);
  return code;
}

}  // namespace entrepot
