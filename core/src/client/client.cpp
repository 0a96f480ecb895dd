#include "client/client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "client/call_deadline.h"
#include "client/fork_plan.h"
#include "client/value_memory.h"
#include "net/compatibility.h"
#include "os/error.h"
#include "os/events.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMinBackOffMs = 5;
constexpr std::uint64_t kMaxBackOffMs = 250;
constexpr std::uint64_t kReturnAtEndMs = 1'000;  // for the answer to leases that are returned at the end
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
  switch (check_compatibility(reply)) {
    case Compatibility::kCompatible:
      return Status::ok();
    case Compatibility::kOtherVersion:
      return {Code::kVersionMismatch,
              concat("the daemon (version ", reply.daemon_version, ") speaks protocol ", reply.protocol_major, ".",
                     reply.protocol_minor, " with layout ", reply.layout_version, ", but this client speaks protocol ",
                     kProtocolMajor, ".", kProtocolMinor, " with layout ", kLayoutVersion,
                     ": install the same version of entrepot on both sides, then run 'entrepot stop' and start again")};
    case Compatibility::kOtherBuild:
      break;
  }
  return {Code::kVersionMismatch,
          concat("the daemon (version ", reply.daemon_version, ", stamp ", reply.abi_stamp,
                 ") is from another build than this client (stamp ", kAbiStamp,
                 "): their formats differ although their versions are equal; build both from the same sources "
                 "('make build'), then run 'entrepot stop' and start again")};
}

}  // namespace

Client::Client(ConnectOptions options) : options_(std::move(options)) {
  static std::atomic<std::uint64_t> next_number = 1;
  number_ = next_number.fetch_add(1, std::memory_order_relaxed);
}

Client::~Client() {
  close();
  // Answers that nobody waits for any more refer to the pools.
  const std::lock_guard lock(mutex_);
  connection_.reset();
}

Result<std::shared_ptr<Client>> Client::connect(const ConnectOptions& options, const Interrupt& interrupt) {
  std::shared_ptr<Client> client(new Client(options));
  RETURN_IF_ERROR(client->open(interrupt));
  static_cast<void>(ValueMemory::instance());  // before the client watches: see there
  watch_forks(client);
  return client;
}

Result<Client::Handshake> Client::shake_hands(const Hello& hello, std::span<const int> fds, os::Deadline deadline,
                                              const Interrupt& interrupt, bool& connected) const {
  connected = false;
  auto socket = os::connect_unix(options_.path, deadline);
  if (!socket.is_ok()) {
    if (socket.code() != Code::kAccessDenied || os::is_out_of_descriptors(socket.status())) return socket.status();
    return Status(Code::kAccessDenied,
                  concat("the socket ", options_.path, " belongs to another user (", socket.status().message(),
                         "): each user has their own store; unset ENTREPOT_ADDRESS, or set it to a store of yours"));
  }
  ASSIGN_OR_RETURN(const os::PeerCredentials peer, os::peer_credentials(socket->get()));
  if (peer.uid != os::current_uid() && peer.uid != 0) {
    return Status(Code::kAccessDenied,
                  concat("the store at ", options_.path, " runs as user ", peer.uid, ", but this process as user ",
                         os::current_uid(), ": use your own store"));
  }
  connected = true;
  Handshake handshake;
  handshake.connection = std::make_shared<Connection>(socket.take());
  ASSIGN_OR_RETURN(Frame frame,
                   handshake.connection->call(MessageType::kHello, to_wire(hello), fds, deadline, interrupt));
  if (!from_wire(frame.body, handshake.reply)) {
    return Status(Code::kVersionMismatch,
                  concat("the server at ", options_.path, " is not a store that this client supports"));
  }
  RETURN_IF_ERROR(check_versions(handshake.reply));
  if (frame.lost_fds()) {
    connected = false;  // the problem is in this process
    return descriptors_lost_error();
  }
  handshake.connection->set_daemon(handshake.reply.daemon_pid, handshake.reply.protocol_minor);
  handshake.fds = std::move(frame.fds);
  return handshake;
}

Status Client::open(const Interrupt& interrupt) {
  Hello hello;
  hello.client_version = options_.version;
  hello.label = options_.label.empty() ? os::program_label() : options_.label;
  const auto deadline = os::Deadline::after_ms(options_.connect_ms);
  bool connected = false;
  auto handshake = shake_hands(hello, {}, deadline, interrupt, connected);
  // Somebody listens, but the daemon died before it answered: the keeper starts another one behind the same socket.
  for (std::uint64_t back_off = kMinBackOffMs; !handshake.is_ok() && connected && !deadline.passed();
       back_off = std::min(back_off * 2, kMaxBackOffMs)) {
    if (handshake.code() != Code::kStoreUnavailable || interrupt.requested()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(back_off));
    handshake = shake_hands(hello, {}, deadline, interrupt, connected);
  }
  if (!handshake.is_ok()) {
    const Code code = handshake.code();
    return code == Code::kStoreUnavailable || (code == Code::kTimeout && !interrupt.requested())
               ? unavailable(options_.path, handshake.status())
               : handshake.status();
  }
  if (handshake->fds.size() != 7) {
    return {Code::kInternal, concat("the daemon's handshake has ", handshake->fds.size(), " descriptors instead of 7")};
  }
  std::array<UniqueFd, 5> regions;
  for (std::size_t i = 0; i < regions.size(); ++i)
    regions[i] = std::move(handshake->fds[i]);
  ASSIGN_OR_RETURN(ControlView control, ControlView::attach(std::move(regions), handshake->reply.instance));
  ASSIGN_OR_RETURN(PinTable pins, PinTable::attach(std::move(handshake->fds[5])));
  pinned_ = std::make_shared<PinnedSet>(std::move(control), std::move(pins), std::move(handshake->fds[6]));
  pinned_->on_released([weak = weak_from_this()] {
    if (const auto client = weak.lock()) client->post(MessageType::kReleased);
  });
  pinned_->on_full([weak = weak_from_this()](std::uint32_t pins) -> Result<std::uint32_t> {
    const auto client = weak.lock();
    if (!client) return Status(Code::kStoreUnavailable, "this store was closed: connect again");
    ASSIGN_OR_RETURN(
        const GrowPinsReply reply,
        client->request_reply<GrowPinsReply>(MessageType::kGrowPins, GrowPinsRequest{pins}, wait_options(0, {})));
    return reply.pins;
  });
  const std::lock_guard lock(mutex_);
  connection_ = std::move(handshake->connection);
  server_ = handshake->reply;
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
  const os::Deadline deadline = CallDeadline::bounded(options.deadline);
  const os::Deadline limit = CallDeadline::bounded(options.limit);
  Status last;
  for (int tries = 0; tries < kCallTries; ++tries) {
    if (limit.passed()) return Status(Code::kTimeout, "the daemon has not answered in time", true);
    ASSIGN_OR_RETURN(auto current, connection());
    auto frame = current->call(type, body, {}, deadline, options.interrupt, options.abandoned);
    if (frame.is_ok() || !current->broken()) return frame;
    last = frame.status();
    RETURN_IF_ERROR(reconnect(current, limit, options.interrupt));
  }
  return unavailable(options_.path, last);
}

std::shared_ptr<Connection> Client::current_connection() {
  auto current = connection();
  return current.is_ok() ? current.take() : nullptr;
}

Status Client::wait_reconnected(const std::shared_ptr<Connection>& broken, const Interrupt& interrupt) {
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
  const std::uint64_t no_listener_ms = std::min(options_.no_listener_ms, options_.reconnect_ms);
  auto no_listener_deadline = os::Deadline::after_ms(no_listener_ms);
  std::uint64_t back_off = kMinBackOffMs;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (state_ != State::kConnected) {
        return reason_.is_ok() ? Status(Code::kStoreUnavailable, "the store is being closed") : reason_;
      }
      if (connection_ != broken) return Status::ok();  // another thread was faster
    }
    bool connected = false;
    bool is_permanent = false;
    const Status done = reconnect_once(deadline, interrupt, connected, is_permanent);
    if (done.is_ok()) return done;
    if (interrupt.requested()) return interrupted_status();
    if (is_permanent) {
      mark_lost(done);
      return done;
    }
    if (!connected && os::is_out_of_descriptors(done)) return done;  // waiting does not help; later calls may succeed
    if (connected) no_listener_deadline = os::Deadline::after_ms(no_listener_ms);
    if (limit.passed()) return {Code::kTimeout, done.message(), true};
    if (deadline.passed() || no_listener_deadline.passed()) return unavailable(options_.path, done);
    std::this_thread::sleep_for(std::chrono::milliseconds(back_off));
    back_off = std::min(back_off * 2, kMaxBackOffMs);
  }
}

Status Client::reconnect_once(os::Deadline deadline, const Interrupt& interrupt, bool& connected, bool& is_permanent) {
  Hello hello;
  hello.client_version = options_.version;
  hello.label = options_.label.empty() ? os::program_label() : options_.label;
  InstanceId instance{};
  {
    const std::lock_guard lock(mutex_);
    hello.token = server_.token;
    hello.client = server_.client;
    instance = server_.instance;
  }
  hello.reports_leases = 1;
  hello.leases = leases_.snapshot_for_reconnect();
  const std::array<int, 1> fds = {pinned_->pin_table_fd()};
  auto handshake = shake_hands(hello, fds, deadline, interrupt, connected);
  if (!handshake.is_ok()) {
    const Code code = handshake.code();
    is_permanent =
        !handshake.status().retryable() && (code == Code::kVersionMismatch || code == Code::kAccessDenied ||
                                            code == Code::kInvalidReference || code == Code::kInvalidArgument);
    if (!is_permanent) return handshake.status();
    return {Code::kStoreUnavailable,
            concat("the store at ", options_.path, " rejected this client's reconnection (",
                   handshake.status().message(), "): connect again; values that were already read stay readable")};
  }
  if (handshake->reply.instance != instance) {
    is_permanent = true;
    return {Code::kStoreUnavailable,
            concat("the store at ", options_.path, " was replaced by a new one (instance ",
                   to_hex(handshake->reply.instance), " instead of ", to_hex(instance),
                   "), which has none of its objects: connect again; values that were already read stay readable")};
  }
  std::vector<std::uint32_t> restored;  // reservations
  RETURN_IF_ERROR(restore(*handshake->connection, restored, deadline, interrupt));
  {
    const std::lock_guard lock(mutex_);
    connection_ = std::move(handshake->connection);
    server_ = handshake->reply;
    server_.token = hello.token;
    server_.client = hello.client;
    std::erase_if(restored, [this](std::uint32_t number) { return reservations_.contains(number); });
  }
  for (const std::uint32_t number : restored)  // those that other threads have ended meanwhile
    end_reservation(number);
  return Status::ok();
}

// Closes the sessions whose close could not be reported, opens the others (the daemon keeps them open meanwhile, unless
// it found their entries damaged), and takes reservations back, which ended with the previous connection. Fails only if
// this one ends, too.
Status Client::restore(Connection& connection, std::vector<std::uint32_t>& restored, os::Deadline deadline,
                       const Interrupt& interrupt) {
  decltype(sessions_) sessions;
  decltype(reservations_) reservations;
  decltype(unreported_closes_) closes;
  {
    const std::lock_guard lock(mutex_);
    sessions = sessions_;
    closes = unreported_closes_;
    reservations = reservations_;
  }
  for (const std::uint32_t number : closes) {
    auto closed =
        connection.call(MessageType::kCloseSession, to_wire(CloseSessionRequest{number}), {}, deadline, interrupt);
    if (!closed.is_ok() && connection.broken()) return closed.status();
    const std::lock_guard lock(mutex_);
    unreported_closes_.erase(number);
  }
  for (const auto& [key, unused] : sessions) {
    OpenSessionRequest request;
    request.scope = key.first;
    request.session = key.second;
    auto opened = connection.call(MessageType::kOpenSession, to_wire(request), {}, deadline, interrupt);
    if (!opened.is_ok() && connection.broken()) return opened.status();
  }
  for (const auto& [number, bytes] : reservations) {
    auto granted =
        connection.call(MessageType::kReserve, to_wire(ReserveRequest{number, bytes, 0, 1}), {}, deadline, interrupt);
    if (!granted.is_ok() && connection.broken()) return granted.status();
    restored.push_back(number);
  }
  return Status::ok();
}

void Client::mark_lost(const Status& reason) {
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
  ValueMemory::instance().make_private(*this);  // before the daemon takes their leases back
  // The daemon takes leases back from clients that are gone, too, so one that stands still is not waited for.
  auto limit = os::Deadline::after_ms(kReturnAtEndMs);
  const Interrupt at_limit{[](void* context) { return static_cast<const os::Deadline*>(context)->passed(); }, &limit};
  if (current && !current->broken()) {
    leases_.return_idle(at_limit);
    close_sessions(*current, limit);
  }
  const Status reason(Code::kStoreUnavailable, "this store was closed by close(): connect again");
  const std::lock_guard lock(mutex_);
  state_ = State::kClosed;
  reason_ = reason;
  if (!connection_) return;
  connection_->close(reason);
  connection_.reset();  // closed when the last waiting thread is done; the daemon sees that
}

// Values that are still in use keep this client registered, and they should not keep its sessions open.
void Client::close_sessions(Connection& connection, os::Deadline limit) {
  decltype(sessions_) sessions;
  {
    const std::lock_guard lock(mutex_);
    sessions.swap(sessions_);
  }
  for (const auto& [key, open] : sessions) {
    const CloseSessionRequest request{open.number};
    const auto closed = connection.call(MessageType::kCloseSession, to_wire(request), {}, limit, {});
    if (!closed.is_ok() && (limit.passed() || connection.broken())) return;  // it is closed when those values end
  }
}

bool Client::closed() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kConnected;
}

bool Client::is_connected() const {
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
