#include "daemon/server.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "daemon/server_state.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/memfd.h"
#include "os/memory_info.h"
#include "os/process.h"
#include "os/random.h"
#include "os/spin.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMinCapacityBytes = 8ULL << 20;
constexpr std::uint64_t kDefaultLeastBytes = 64ULL << 20;
constexpr std::uint64_t kDefaultMostBytes = 16ULL << 30;
constexpr std::uint64_t kMostWarmBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kHelloNs = 10'000'000'000;
constexpr std::uint64_t kLoneTryNs = 1'000'000'000;  // between two tries to start a keeper
constexpr std::uint64_t kSpinNs = 50'000;
constexpr std::uint64_t kMaxSleepNs = 60'000'000'000;

class SystemClock : public Clock {
 public:
  [[nodiscard]] std::uint64_t monotonic_ns() const override { return os::monotonic_ns(); }
  [[nodiscard]] std::uint64_t unix_ns() const override { return os::unix_ns(); }
};

Result<std::uint64_t> capacity_of(const DaemonConfig& config) {
  if (config.capacity_bytes != 0) return config.capacity_bytes;
  ASSIGN_OR_RETURN(const os::MemoryInfo memory, os::read_memory_info());
  const std::uint64_t share = std::min({memory.ceiling() / 10 * 3, memory.available / 2, kDefaultMostBytes});
  return std::max(share / kSegmentAlign * kSegmentAlign, kDefaultLeastBytes);
}

// The event loop. Built once the store is fresh or adopted.
class Server {
 public:
  Server(ServerState& state, Provisioner& provisioner, UniqueFd signals, int provisioner_event)
      : state_(state), provisioner_(provisioner), signals_(std::move(signals)), provisioner_event_(provisioner_event) {}

  [[nodiscard]] Status watch();
  [[nodiscard]] int run();

 private:
  [[nodiscard]] Result<std::vector<os::Ready>> wait(std::uint64_t sleep_ms);
  void take_event(const os::Ready& ready);
  void accept_all();
  void read_from(Connection& connection);
  void read_more();
  void take_signals();
  void housekeep();
  void watch_keeper();
  [[nodiscard]] std::uint64_t next_wake_ns() const;
  [[nodiscard]] bool idle_for_long();

  ServerState& state_;
  Provisioner& provisioner_;
  UniqueFd signals_;
  int provisioner_event_;
  std::uint64_t watched_keeper_ = 0;
  std::uint64_t idle_since_ns_ = 0;  // 0: not idle
  std::uint64_t next_lone_try_ns_ = 0;
  bool some_have_more_ = false;
  bool answered_ = false;  // a request was taken since the last wait
  os::SpinGate after_request_{kSpinNs};
};

Status Server::watch() {
  const int listening = state_.link.fd({HeldKind::kListenSocket, 0});
  RETURN_IF_ERROR(state_.poller.add(listening, watch_key(WatchKind::kListen), true, false));
  RETURN_IF_ERROR(state_.poller.add(signals_.get(), watch_key(WatchKind::kSignals), true, false));
  RETURN_IF_ERROR(state_.poller.add(provisioner_event_, watch_key(WatchKind::kProvisioner), true, false));
  watch_keeper();
  state_.watch_adopted_clients();
  return Status::ok();
}

void Server::watch_keeper() {
  const int channel = state_.link.channel();
  if (channel < 0 || state_.link.keeper_number() == watched_keeper_) return;
  // The former channel is closed already, which took it out of the poller.
  watched_keeper_ = state_.link.keeper_number();
  if (const Status added = state_.poller.add(channel, watch_key(WatchKind::kKeeper), true, false); !added.is_ok()) {
    log_error("the keeper cannot be watched: ", added.message());
  }
}

int Server::run() {
  state_.store.settle();
  while (!state_.stopping) {
    const std::uint64_t now = os::monotonic_ns();
    const std::uint64_t wake = next_wake_ns();
    const std::uint64_t sleep_ms = wake <= now ? 0 : (wake - now + 999'999) / 1'000'000;
    auto ready = wait(some_have_more_ ? 0 : sleep_ms);
    if (!ready.is_ok()) {
      log_error("waiting for events: ", ready.status().message());
      return 1;  // the keeper starts another daemon, which adopts all
    }
    for (const os::Ready& one : *ready)
      take_event(one);
    if (some_have_more_) read_more();
    state_.store.settle();
    housekeep();
  }
  log_info("ends: ", state_.store.objects().count(), " objects go with it");
  provisioner_.stop();
  state_.link.goodbye();
  return 0;
}

// After a request the next one is often near, so it is polled for before this thread sleeps.
Result<std::vector<os::Ready>> Server::wait(std::uint64_t sleep_ms) {
  if (std::exchange(answered_, false) && sleep_ms > 0) {
    Result<std::vector<os::Ready>> ready = std::vector<os::Ready>{};
    const bool came = after_request_.poll([&] {
      ready = state_.poller.wait(os::Deadline::after_ms(0));
      return !ready.is_ok() || !ready->empty();
    });
    if (came) return ready;
  }
  return state_.poller.wait(os::Deadline::after_ms(sleep_ms));
}

void Server::take_event(const os::Ready& ready) {
  const auto kind = static_cast<WatchKind>(ready.key >> 56);
  const std::uint64_t number = ready.key & ((1ULL << 56) - 1);
  switch (kind) {
    case WatchKind::kListen:
      return accept_all();
    case WatchKind::kSignals:
      return take_signals();
    case WatchKind::kKeeper:
      state_.link.on_readable();
      return watch_keeper();
    case WatchKind::kProvisioner:
      os::clear_event(provisioner_event_);
      return state_.segments.take_finished();
    case WatchKind::kLiveness:
      if (ready.hangup) state_.client_died(static_cast<std::uint32_t>(number));
      return;
    case WatchKind::kConnection:
      break;
  }
  Connection* connection = state_.find(number);
  if (connection == nullptr) return;  // closed by an event before this one
  if (ready.writable) {
    if (const Status flushed = connection->frames.flush(); !flushed.is_ok()) connection->closing = true;
    state_.update_watch(*connection);
  }
  if (!connection->closing && (ready.readable || ready.hangup)) read_from(*connection);
  // A handler may have closed it (its client died, or came back on another connection).
  connection = state_.find(number);
  if (connection != nullptr && connection->closing) state_.close_connection(number);
}

void Server::accept_all() {
  const int listening = state_.link.fd({HeldKind::kListenSocket, 0});
  while (true) {
    auto socket = os::accept_unix(listening);
    if (!socket.is_ok()) {
      log_error("a connection cannot be accepted: ", socket.status().message());
      return;
    }
    if (!socket->valid()) return;
    auto peer = os::peer_credentials(socket->get());
    if (!peer.is_ok()) {
      log_error("a connection without credentials is closed: ", peer.status().message());
      continue;
    }
    state_.add_connection(std::move(socket).value(), *peer);
  }
}

void Server::read_from(Connection& connection) {
  const std::uint64_t owner = connection.owner;
  FrameSocket::Incoming incoming = connection.frames.receive();
  connection.has_more = incoming.more;
  some_have_more_ = some_have_more_ || incoming.more;
  for (IncomingFrame& frame : incoming.frames) {
    state_.handle(connection, frame);
    answered_ = true;
    if (state_.find(owner) == nullptr) return;
    if (connection.closing) return;
  }
  if (incoming.status.is_ok()) return;
  if (incoming.status.code() != Code::kStoreUnavailable) {
    log_warning("connection ", owner, " of process ", connection.peer.pid, ": ", incoming.status.message());
    state_.refuse(owner, 0, incoming.status);
  }
  connection.closing = true;
}

void Server::read_more() {
  some_have_more_ = false;
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

void Server::take_signals() {
  while (true) {
    const auto signal = os::read_signal(signals_.get());
    if (!signal.is_ok() || *signal == 0) return;
    if (*signal == SIGCHLD) {
      while (os::reap()) {
      }
      continue;
    }
    log_info("signal ", *signal, ": the store ends");
    state_.stopping = true;
  }
}

void Server::housekeep() {
  const std::uint64_t now = os::monotonic_ns();
  if (now >= state_.store.next_deadline_ns()) {
    state_.store.tick();
    state_.store.settle();
  }
  std::vector<std::uint64_t> leaving;
  for (const auto& [owner, connection] : state_.connections) {
    const bool silent = !connection->client && now - connection->accepted_ns > kHelloNs;
    if (connection->closing || silent) leaving.push_back(owner);
  }
  for (const std::uint64_t owner : leaving)
    state_.close_connection(owner);
  if (state_.link.channel() < 0 && now >= next_lone_try_ns_) {
    next_lone_try_ns_ = now + kLoneTryNs;
    state_.link.restart_if_alone();
  }
  watch_keeper();
  if (idle_for_long()) {
    log_info("idle for ", state_.config.idle_exit_seconds, " s: the store ends");
    state_.stopping = true;
  }
}

bool Server::idle_for_long() {
  if (state_.config.idle_exit_seconds == 0) return false;
  if (!state_.store.is_idle() || !state_.connections.empty()) {
    idle_since_ns_ = 0;
    return false;
  }
  const std::uint64_t now = os::monotonic_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  return now - idle_since_ns_ >= state_.config.idle_exit_seconds * kSecondNs;
}

std::uint64_t Server::next_wake_ns() const {
  const std::uint64_t now = os::monotonic_ns();
  std::uint64_t wake = std::min(now + kMaxSleepNs, state_.store.next_deadline_ns());
  if (state_.link.channel() < 0) wake = std::min(wake, next_lone_try_ns_);
  if (idle_since_ns_ != 0) {
    wake = std::min(wake, idle_since_ns_ + state_.config.idle_exit_seconds * kSecondNs);
  }
  for (const auto& [owner, connection] : state_.connections) {
    if (!connection->client) wake = std::min(wake, connection->accepted_ns + kHelloNs + 1);
  }
  return wake;
}

Result<ControlMemory> open_memory(KeeperLink& link, bool& fresh) {
  std::map<RegionKind, UniqueFd> held;
  for (const RegionKind kind : kAllRegions) {
    const int fd = link.fd({HeldKind::kRegion, static_cast<std::uint64_t>(kind)});
    if (fd < 0) continue;
    ASSIGN_OR_RETURN(UniqueFd own, os::duplicate(fd));
    held.emplace(kind, std::move(own));
  }
  fresh = held.size() != kAllRegions.size();  // a daemon that died before all were held had published nothing
  if (!fresh) return ControlMemory::adopt(std::move(held));
  ASSIGN_OR_RETURN(ControlMemory memory, ControlMemory::create(os::random_instance()));
  for (const RegionKind kind : kAllRegions) {
    ASSIGN_OR_RETURN(UniqueFd copy, os::duplicate(memory.region(kind).fd()));
    RETURN_IF_ERROR(link.hold({HeldKind::kRegion, static_cast<std::uint64_t>(kind)}, std::move(copy)));
  }
  return memory;
}

Status adopt(Store& store, KeeperLink& link) {
  store.adopt_clients();
  for (const auto& [client, state] : store.clients().all()) {
    const int pins = link.fd({HeldKind::kPinTable, client});
    const Status added = pins < 0 ? Status(Code::kInternal, "the keeper does not hold it")
                                  : store.pins().add(client, pins, state.identity.pin_capacity);
    if (!added.is_ok()) log_error("the pin table of client ", client, " is lost: ", added.message());
  }
  ASSIGN_OR_RETURN(const AdoptionReport report, store.adopt_rest());
  log_info("adopted ", report.objects.adopted, " objects, ", report.objects.deferred, " being deleted, ",
           report.objects.lost, " lost, ", report.lost_segments, " segments lost, ", report.damaged_entries,
           " damaged entries");
  return Status::ok();
}

// What a former daemon had the keeper hold and no table knows (it died between the two) is given back.
void drop_orphans(const Store& store, KeeperLink& link) {
  std::vector<HeldTag> orphans;
  for (const auto& [tag, fd] : link.all()) {
    if (tag.kind == HeldKind::kSegment) {
      const auto segment = static_cast<std::uint32_t>(tag.number);
      const bool known =
          store.pool().is_known(segment) && tag == segment_tag(segment, store.pool().generation(segment));
      if (!known) orphans.push_back(tag);
    } else if (tag.kind == HeldKind::kPinTable || tag.kind == HeldKind::kLiveness) {
      if (store.clients().find(static_cast<std::uint32_t>(tag.number)) == nullptr) orphans.push_back(tag);
    }
  }
  for (const HeldTag& tag : orphans)
    link.drop(tag);
}

void announce(int ready_fd) {
  if (ready_fd < 0) return;
  UniqueFd fd(ready_fd);
  if (const Status written = os::write_text(fd.get(), "ready\n"); !written.is_ok()) {
    log_warning("whoever waited for this store to be ready is gone: ", written.message());
  }
}

Status serve(const DaemonConfig& config, KeeperLink& link, int& code) {
  RETURN_IF_ERROR(os::ignore_sigpipe());
  ASSIGN_OR_RETURN(UniqueFd signals, os::create_signal_fd({SIGTERM, SIGINT, SIGHUP, SIGCHLD}));
  RETURN_IF_ERROR(link.take_over());
  bool fresh = true;
  ASSIGN_OR_RETURN(ControlMemory memory, open_memory(link, fresh));

  StoreOptions options;
  // A restarted daemon keeps the capacity that the store began with, whatever memory is free by now.
  options.capacity_bytes = fresh ? 0 : memory.root().capacity_bytes.load(std::memory_order_relaxed);
  if (options.capacity_bytes == 0) {
    ASSIGN_OR_RETURN(options.capacity_bytes, capacity_of(config));
  }
  options.warm_bytes = std::min(config.warm_bytes == UINT64_MAX ? kMostWarmBytes : config.warm_bytes,
                                config.warm_bytes == UINT64_MAX ? options.capacity_bytes / 4 : options.capacity_bytes);
  options.default_ttl_seconds = config.default_ttl_seconds;
  options.host = os::host_name();
  options.version = ENTREPOT_VERSION;

  ASSIGN_OR_RETURN(const UniqueFd event, os::create_event_fd());
  Provisioner provisioner;
  RETURN_IF_ERROR(provisioner.start(event.get()));
  SegmentFiles segments(link, provisioner);
  const SystemClock clock;
  Store store(memory, segments, clock, options);
  segments.on_done(
      [&store](const Provisioned& one) { store.provisioned(one.segment, one.generation, one.status, one.kind); });
  if (fresh) {
    RETURN_IF_ERROR(store.start_fresh());
  } else {
    RETURN_IF_ERROR(adopt(store, link));
  }
  drop_orphans(store, link);

  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  ServerState state(config, link, memory, store, segments, std::move(poller));
  Server server(state, provisioner, std::move(signals), event.get());
  RETURN_IF_ERROR(server.watch());
  log_info("store ", to_hex(memory.instance()), " of ", format_bytes(options.capacity_bytes), " at ",
           config.socket_path);
  announce(config.ready_fd);
  code = server.run();
  provisioner.stop();
  return Status::ok();
}

}  // namespace

Status check_capacity(const DaemonConfig& config) {
  if (config.capacity_bytes == 0) return Status::ok();
  if (config.capacity_bytes < kMinCapacityBytes) {
    return Status(Code::kInvalidArgument, concat("--size ", format_bytes(config.capacity_bytes),
                                                 " is below the least of ", format_bytes(kMinCapacityBytes)));
  }
  ASSIGN_OR_RETURN(const os::MemoryInfo memory, os::read_memory_info());
  if (config.capacity_bytes <= memory.ceiling()) return Status::ok();
  return Status(
      Code::kInvalidArgument,
      concat("--size ", format_bytes(config.capacity_bytes), " is more than there is: ",
             memory.cgroup_limit ? "the control group's limit or the machine's memory is " : "the machine has ",
             format_bytes(memory.ceiling())));
}

int run_server(const DaemonConfig& config, KeeperLink link) {
  int code = 0;
  const Status served = serve(config, link, code);
  if (served.is_ok()) return code;
  log_error("the daemon cannot go on: ", served.to_string());
  return 1;
}

}  // namespace entrepot
