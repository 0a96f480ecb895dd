#include "client/client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "client/fork_plan.h"
#include "net/fit.h"
#include "os/error.h"
#include "os/events.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kFirstBackOffMs = 5;
constexpr std::uint64_t kMaxBackOffMs = 250;
constexpr int kCallTries = 8;

Status unavailable(const std::string& path, const Status& cause) {
  // Somebody listens: advice to start another store would be wrong.
  if (cause.code() == Code::kTimeout) {
    return {Code::kStoreUnavailable, concat("the store at ", path, ": ", cause.message()), true};
  }
  return {Code::kStoreUnavailable,
          concat("the store at ", path, " cannot be reached (", cause.message(),
                 "): see 'entrepot status' and 'entrepot logs', and start one with 'entrepot start'"),
          true};
}

Status check_versions(const HelloReply& reply) {
  switch (fit_of(reply)) {
    case Fit::kFits:
      return Status::ok();
    case Fit::kOtherVersion:
      return {Code::kVersionMismatch,
              concat("the daemon (version ", reply.daemon_version, ") speaks protocol ", reply.protocol_major, ".",
                     reply.protocol_minor, " with layout ", reply.layout_version, ", this client protocol ",
                     kProtocolMajor, ".", kProtocolMinor, " with layout ", kLayoutVersion,
                     ": install the same version of entrepot on both sides, then 'entrepot stop' and start again")};
    case Fit::kOtherBuild:
      break;
  }
  return {Code::kVersionMismatch,
          concat("the daemon (version ", reply.daemon_version, ", stamp ", reply.abi_stamp,
                 ") is of another build than this client (stamp ", kAbiStamp,
                 "): their formats differ though their versions are the same; build both from the same sources "
                 "('make build'), then 'entrepot stop' and start again")};
}

}  // namespace

Client::Client(ConnectOptions options) : options_(std::move(options)) {}

Client::~Client() {
  close();
  // Answers that nobody waits for any more refer to the pools.
  const std::lock_guard lock(mutex_);
  connection_.reset();
}

Result<std::shared_ptr<Client>> Client::connect(const ConnectOptions& options, const Interrupt& interrupt) {
  std::shared_ptr<Client> client(new Client(options));
  RETURN_IF_ERROR(client->open(interrupt));
  watch_forks(client);
  return client;
}

Result<Client::Greeting> Client::greet(const Hello& hello, std::span<const int> fds, os::Deadline deadline,
                                       const Interrupt& interrupt, bool& connected) const {
  connected = false;
  auto socket = os::connect_unix(options_.path, deadline);
  if (!socket.is_ok()) {
    if (socket.code() != Code::kAccessDenied || os::is_out_of_descriptors(socket.status())) return socket.status();
    return Status(Code::kAccessDenied,
                  concat("the socket ", options_.path, " belongs to another user (", socket.status().message(),
                         "): every user has a store of their own; unset ENTREPOT_ADDRESS, or name one of yours"));
  }
  ASSIGN_OR_RETURN(const os::PeerCredentials peer, os::peer_credentials(socket->get()));
  if (peer.uid != os::current_uid() && peer.uid != 0) {
    return Status(Code::kAccessDenied,
                  concat("the store at ", options_.path, " runs as user ", peer.uid, ", this process as user ",
                         os::current_uid(), ": use a store of your own"));
  }
  connected = true;
  Greeting greeting;
  greeting.connection = std::make_shared<Connection>(socket.take());
  ASSIGN_OR_RETURN(Frame frame,
                   greeting.connection->call(MessageType::kHello, to_wire(hello), fds, deadline, interrupt));
  if (!from_wire(frame.body, greeting.reply)) {
    return Status(Code::kVersionMismatch,
                  concat("what answers at ", options_.path, " is no store that this client knows"));
  }
  RETURN_IF_ERROR(check_versions(greeting.reply));
  if (frame.lost_fds()) {
    connected = false;  // the problem is in this process
    return no_place_for_descriptors();
  }
  greeting.connection->set_daemon(greeting.reply.daemon_pid);
  greeting.fds = std::move(frame.fds);
  return greeting;
}

Status Client::open(const Interrupt& interrupt) {
  Hello hello;
  hello.client_version = options_.version;
  hello.label = options_.label.empty() ? os::program_label() : options_.label;
  const auto deadline = os::Deadline::after_ms(options_.connect_ms);
  bool connected = false;
  auto greeting = greet(hello, {}, deadline, interrupt, connected);
  // Somebody listens, but the daemon died before it answered: the keeper starts another one behind the same socket.
  for (std::uint64_t back_off = kFirstBackOffMs; !greeting.is_ok() && connected && !deadline.passed();
       back_off = std::min(back_off * 2, kMaxBackOffMs)) {
    if (greeting.code() != Code::kStoreUnavailable || interrupt.requested()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(back_off));
    greeting = greet(hello, {}, deadline, interrupt, connected);
  }
  if (!greeting.is_ok()) {
    const Code code = greeting.code();
    return code == Code::kStoreUnavailable || (code == Code::kTimeout && !interrupt.requested())
               ? unavailable(options_.path, greeting.status())
               : greeting.status();
  }
  if (greeting->fds.size() != 7) {
    return {Code::kInternal, concat("the daemon greeted with ", greeting->fds.size(), " descriptors instead of 7")};
  }
  std::array<UniqueFd, 5> regions;
  for (std::size_t i = 0; i < regions.size(); ++i)
    regions[i] = std::move(greeting->fds[i]);
  ASSIGN_OR_RETURN(ControlView control, ControlView::attach(std::move(regions), greeting->reply.instance));
  ASSIGN_OR_RETURN(PinTable pins, PinTable::attach(std::move(greeting->fds[5])));
  pinned_ = std::make_shared<PinnedSet>(std::move(control), std::move(pins), std::move(greeting->fds[6]));
  pinned_->on_released([weak = weak_from_this()] {
    if (const auto client = weak.lock()) client->post(MessageType::kReleased);
  });
  pinned_->on_full([weak = weak_from_this()](std::uint32_t pins) -> Result<std::uint32_t> {
    const auto client = weak.lock();
    if (!client) return Status(Code::kStoreUnavailable, "this store was closed: connect again");
    ASSIGN_OR_RETURN(const GrowPinsReply reply,
                     client->ask<GrowPinsReply>(MessageType::kGrowPins, GrowPinsRequest{pins}, waiting(0, {})));
    return reply.pins;
  });
  const std::lock_guard lock(mutex_);
  connection_ = std::move(greeting->connection);
  server_ = greeting->reply;
  return Status::ok();
}

Result<std::shared_ptr<Connection>> Client::connection() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kClosed || state_ == State::kLost) return reason_;
  return connection_;
}

Result<Frame> Client::call(MessageType type, std::span<const std::uint8_t> body, const CallOptions& options) {
  if (options.only_on) {
    return options.only_on->call(type, body, {}, options.deadline, options.interrupt, options.abandoned);
  }
  Status last;
  for (int tries = 0; tries < kCallTries; ++tries) {
    ASSIGN_OR_RETURN(auto current, connection());
    auto frame = current->call(type, body, {}, options.deadline, options.interrupt, options.abandoned);
    if (frame.is_ok() || !current->broken()) return frame;
    last = frame.status();
    RETURN_IF_ERROR(reconnect(current, options.limit, options.interrupt));
  }
  return unavailable(options_.path, last);
}

std::shared_ptr<Connection> Client::link() {
  auto current = connection();
  return current.is_ok() ? current.take() : nullptr;
}

Status Client::replace_link(const std::shared_ptr<Connection>& broken, const Interrupt& interrupt) {
  return reconnect(broken, os::Deadline::never(), interrupt);
}

void Client::post(MessageType type) {
  std::shared_ptr<Connection> current;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || state_ != State::kConnected) return;
    current = connection_;
  }
  if (current) current->post(type, {});
}

Status Client::reconnect(const std::shared_ptr<Connection>& broken, os::Deadline limit, const Interrupt& interrupt) {
  return reconnecting_.run(interrupt, limit, [&] { return reconnect_in_turn(broken, limit, interrupt); });
}

Status Client::reconnect_in_turn(const std::shared_ptr<Connection>& broken, os::Deadline limit,
                                 const Interrupt& interrupt) {
  const auto own = os::Deadline::after_ms(options_.reconnect_ms);
  const auto deadline = own.at_ns() < limit.at_ns() ? own : limit;
  const std::uint64_t nobody_ms = std::min(options_.nobody_ms, options_.reconnect_ms);
  auto nobody_since = os::Deadline::after_ms(nobody_ms);
  std::uint64_t back_off = kFirstBackOffMs;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (state_ != State::kConnected) {
        return reason_.is_ok() ? Status(Code::kStoreUnavailable, "the store is being closed") : reason_;
      }
      if (connection_ != broken) return Status::ok();  // another thread was faster
    }
    bool connected = false;
    bool hopeless = false;
    const Status done = reconnect_once(deadline, interrupt, connected, hopeless);
    if (done.is_ok()) return done;
    if (interrupt.requested()) return interrupted_status();
    if (hopeless) {
      lose(done);
      return done;
    }
    if (!connected && os::is_out_of_descriptors(done)) return done;  // waiting does not help; later calls may succeed
    if (connected) nobody_since = os::Deadline::after_ms(nobody_ms);
    if (limit.passed()) return {Code::kTimeout, done.message(), true};
    if (deadline.passed() || nobody_since.passed()) return unavailable(options_.path, done);
    std::this_thread::sleep_for(std::chrono::milliseconds(back_off));
    back_off = std::min(back_off * 2, kMaxBackOffMs);
  }
}

Status Client::reconnect_once(os::Deadline deadline, const Interrupt& interrupt, bool& connected, bool& hopeless) {
  Hello hello;
  hello.client_version = options_.version;
  hello.label = options_.label.empty() ? os::program_label() : options_.label;
  decltype(sessions_) sessions;
  InstanceId instance{};
  {
    const std::lock_guard lock(mutex_);
    hello.token = server_.token;
    hello.client = server_.client;
    instance = server_.instance;
    sessions = sessions_;
  }
  hello.leases_known = 1;
  hello.leases = leases_.snapshot_for_reconnect();
  const std::array<int, 1> fds = {pinned_->pin_table_fd()};
  auto greeting = greet(hello, fds, deadline, interrupt, connected);
  if (!greeting.is_ok()) {
    const Code code = greeting.code();
    hopeless = !greeting.status().retryable() && (code == Code::kVersionMismatch || code == Code::kAccessDenied ||
                                                  code == Code::kInvalidReference || code == Code::kInvalidArgument);
    if (!hopeless) return greeting.status();
    return {Code::kStoreUnavailable,
            concat("the store at ", options_.path, " does not take this client back (", greeting.status().message(),
                   "): connect again; values that were got stay readable")};
  }
  if (greeting->reply.instance != instance) {
    hopeless = true;
    return {Code::kStoreUnavailable,
            concat("the store at ", options_.path, " was replaced by a new one (instance ",
                   to_hex(greeting->reply.instance), " instead of ", to_hex(instance),
                   "), which has none of its objects: connect again; values that were got stay readable")};
  }
  for (const auto& [key, unused] : sessions) {
    OpenSessionRequest request;
    request.scope = key.first;
    request.session = key.second;
    auto opened = greeting->connection->call(MessageType::kOpenSession, to_wire(request), {}, deadline, interrupt);
    if (!opened.is_ok() && greeting->connection->broken()) return opened.status();
  }
  const std::lock_guard lock(mutex_);
  connection_ = std::move(greeting->connection);
  server_ = greeting->reply;
  server_.token = hello.token;
  server_.client = hello.client;
  return Status::ok();
}

void Client::lose(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kConnected) return;
  state_ = State::kLost;
  usable_.store(false, std::memory_order_relaxed);
  reason_ = reason;
}

void Client::close() {
  std::shared_ptr<Connection> current;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kClosing || state_ == State::kClosed) return;
    if (state_ == State::kConnected) current = connection_;
    state_ = State::kClosing;  // no reconnects from here on
    usable_.store(false, std::memory_order_relaxed);
  }
  if (current && !current->broken()) leases_.return_idle({});
  const Status reason(Code::kStoreUnavailable, "this store was closed by close(): connect again");
  const std::lock_guard lock(mutex_);
  state_ = State::kClosed;
  reason_ = reason;
  if (!connection_) return;
  connection_->close(reason);
  connection_.reset();  // closed when the last waiting thread is done; the daemon sees that
}

bool Client::closed() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kConnected;
}

bool Client::stands() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kConnected && connection_ && !connection_->ended();
}

bool Client::lost() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kLost;
}

ServerInfo Client::server() const {
  const std::lock_guard lock(mutex_);
  return {server_.instance,   server_.host,           server_.daemon_version,
          server_.daemon_pid, server_.capacity_bytes, server_.shared_between_users != 0};
}

// --- objects ---------------------------------------------------------------------------------------------------------

}  // namespace entrepot
