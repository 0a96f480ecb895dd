#include "daemon/client_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "net/compatibility.h"
#include "os/log.h"
#include "os/memfd.h"
#include "os/process.h"
#include "os/random.h"

namespace entrepot {

namespace {

DescriptorTag pin_table_tag(std::uint32_t client) { return {DescriptorKind::kPinTable, client}; }
DescriptorTag liveness_tag(std::uint32_t client) { return {DescriptorKind::kLiveness, client}; }

}  // namespace

ClientRegistry::ClientRegistry(EventLoop& loop, Connections& connections, KeeperLink& link, ControlMemory& memory,
                               Store& store)
    : loop_(loop), connections_(connections), link_(link), memory_(memory), store_(store) {
  connections_.on_closed([this](std::uint64_t owner, std::uint32_t client) { store_.disconnected(client, owner); });
}

Status ClientRegistry::check_versions(const Connection& connection, const Hello& hello) const {
  if (connection.peer().uid != os::current_uid()) {
    return Status(Code::kAccessDenied, concat("this store belongs to user ", os::current_uid(),
                                              ", but the caller is user ", connection.peer().uid,
                                              ": each user has their own store; unset ENTREPOT_ADDRESS to use yours"));
  }
  switch (check_compatibility(hello)) {
    case Compatibility::kCompatible:
      return Status::ok();
    case Compatibility::kOtherVersion:
      return Status(
          Code::kVersionMismatch,
          concat("the client (version ", hello.client_version, ") speaks protocol ", hello.protocol_major, ".",
                 hello.protocol_minor, " with layout ", hello.layout_version, ", but this daemon (version ",
                 ENTREPOT_VERSION, ") speaks ", kProtocolMajor, ".", kProtocolMinor, " with layout ", kLayoutVersion,
                 ": install the same version on both sides, then run 'entrepot stop' and start again"));
    case Compatibility::kOtherBuild:
      break;
  }
  return Status(Code::kVersionMismatch,
                concat("the client (version ", hello.client_version, ", stamp ", hello.abi_stamp,
                       ") is from another build than this daemon (version ", ENTREPOT_VERSION, ", stamp ", kAbiStamp,
                       "): their formats differ although their versions are equal; build both from the same sources "
                       "('make build'), then run 'entrepot stop' and start again"));
}

void ClientRegistry::hello(Connection& connection, Frame& frame) {
  const Status admitted = admit(connection, frame);
  if (admitted.is_ok()) return;
  connections_.refuse(connection.owner(), frame.header.request, admitted);
  connections_.mark_closing(connection);
}

Status ClientRegistry::admit(Connection& connection, Frame& frame) {
  Hello hello;
  if (frame.header.type != MessageType::kHello || !from_wire(frame.body, hello)) {
    return Status(Code::kInvalidArgument, "the first message of a connection must be Hello");
  }
  RETURN_IF_ERROR(check_versions(connection, hello));
  if (hello.leases.size() > kMaxReportedRanges) {
    return Status(Code::kInvalidArgument,
                  concat("a Hello with ", hello.leases.size(), " leased ranges exceeds the limit of ",
                         kMaxReportedRanges, ": connect again and write fewer objects at once"));
  }
  if (frame.lost_fds()) return descriptors_lost_error();

  HelloReply answer;
  ASSIGN_OR_RETURN(auto regions, memory_.client_fds());
  std::vector<UniqueFd> fds(std::make_move_iterator(regions.begin()), std::make_move_iterator(regions.end()));
  if (hello.token != 0) {
    RETURN_IF_ERROR(reconnect(hello, frame.fds));
    answer.client = hello.client;
    answer.token = hello.token;
  } else {
    ClientIdentity identity;
    identity.pid = connection.peer().pid;
    identity.uid = connection.peer().uid;
    identity.pin_capacity = std::clamp<std::uint32_t>(hello.pin_capacity, 1, kMaxPinsPerClient);
    identity.label = to_utf8(hello.label, kLabelMaxBytes);  // program names are arbitrary
    ASSIGN_OR_RETURN(Registration registered, register_client(identity));
    answer.client = registered.client;
    answer.token = registered.token;
    fds.push_back(std::move(registered.pin_table));
    fds.push_back(std::move(registered.liveness));
  }
  connections_.identify(connection, answer.client);
  connections_.refuse_descriptors(connection);
  answer.daemon_version = ENTREPOT_VERSION;
  answer.instance = memory_.instance();
  answer.incarnation = memory_.root().incarnation.load(std::memory_order_relaxed);
  answer.host = store_.options().host;
  answer.capacity_bytes = store_.options().capacity_bytes;
  answer.daemon_pid = static_cast<std::uint32_t>(os::current_pid());
  connections_.reply(connection.owner(), frame.header.request, answer, std::move(fds));
  return Status::ok();
}

Result<ClientRegistry::Registration> ClientRegistry::register_client(const ClientIdentity& identity,
                                                                     std::uint32_t pins) {
  RETURN_IF_ERROR(store_.check_client_limit(identity.forked));
  const std::uint64_t memory_bytes = pin_memory_bytes(pins, identity.pin_capacity);
  ASSIGN_OR_RETURN(const std::uint32_t client, store_.begin_client());
  if (const Status taken = store_.reserve_for_client(memory_bytes); !taken.is_ok()) {
    store_.abandon_client(client);
    return taken;
  }
  Registration registration;
  registration.client = client;
  registration.token = os::random_u64();
  if (const Status held_status = hold_client_descriptors(client, identity, pins, registration); !held_status.is_ok()) {
    store_.pins().remove(client);
    store_.budget().release(BudgetItem::kPinTables, memory_bytes);
    liveness_.erase(client);
    link_.drop(pin_table_tag(client));
    link_.drop(liveness_tag(client));
    store_.abandon_client(client);
    return held_status;
  }
  store_.publish_client(client, registration.token, identity);
  return registration;
}

Status ClientRegistry::hold_client_descriptors(std::uint32_t client, const ClientIdentity& identity, std::uint32_t pins,
                                               Registration& registration) {
  ASSIGN_OR_RETURN(UniqueFd table, create_pin_table(identity.pin_capacity, pins));
  ASSIGN_OR_RETURN(registration.pin_table, os::duplicate(table.get()));
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kStream));
  registration.liveness = std::move(pair.second);
  if (identity.forked) RETURN_IF_ERROR(os::request_sender(pair.first.get()));
  link_.hold(pin_table_tag(client), std::move(table));
  link_.hold(liveness_tag(client), std::move(pair.first));
  if (!link_.is_held_by_keeper(liveness_tag(client))) {  // the second of the two: they are sent in order
    return Status(
        Code::kStoreUnavailable,
        concat("the store's keeper (process ", link_.keeper_pid(), ") is stopped or being replaced, so a new ",
               "client's pins would be lost if the daemon died now: try again when it runs"),
        true);
  }
  RETURN_IF_ERROR(store_.pins().add(client, link_.fd(pin_table_tag(client)), identity.pin_capacity));
  return watch_liveness(client);
}

Status ClientRegistry::watch_liveness(std::uint32_t client) {
  const int fd = link_.fd(liveness_tag(client));
  if (fd < 0) return Status(Code::kInternal, concat("client ", client, " has no liveness socket"));
  ASSIGN_OR_RETURN(liveness_[client], loop_.watch(fd, Interest::kRead, [this, client](const os::Ready& ready) {
    if (ready.hangup) return client_died(client);
    if (ready.readable) note_process(client);
  }));
  return Status::ok();
}

void ClientRegistry::note_process(std::uint32_t client) {
  const ClientState* state = store_.clients().find(client);
  if (state != nullptr && state->identity.pid == 0) {
    store_.set_client_process(client, os::sender_of_next(link_.fd(liveness_tag(client))));
  }
  // What it has sent stays there, for the daemon that takes over.
  if (const Status changed = liveness_[client].change(Interest::kHangup); !changed.is_ok()) {
    log_error("the liveness socket of client ", client, ": ", changed.message());
    client_died(client);  // it would wake this thread up without end
  }
}

Status ClientRegistry::reconnect(const Hello& hello, const std::vector<UniqueFd>& fds) {
  const int held_table = link_.fd(pin_table_tag(hello.client));
  if (fds.empty() || held_table < 0) {
    return Status(Code::kAccessDenied,
                  concat("client ", hello.client, " is unknown to this store, or did not send its pin table"));
  }
  ASSIGN_OR_RETURN(const bool same, os::same_file(held_table, fds.front().get()));
  if (!same) return Status(Code::kAccessDenied, concat("the pin table sent is not that of client ", hello.client));
  const ClientState* state = store_.clients().find(hello.client);
  if (state == nullptr || state->token != hello.token) {  // before anything is changed for that client
    return Status(Code::kAccessDenied, concat("the token sent is not that of client ", hello.client));
  }
  if (store_.pins().is_unreadable(hello.client)) {
    const Status added = store_.pins().add(hello.client, held_table, state->identity.pin_capacity);
    if (!added.is_ok()) log_error("the pin table of client ", hello.client, ": ", added.message());
    store_.budget().charge(BudgetItem::kPinTables, pin_table_memory(hello.client));
  }
  connections_.close_of_client(hello.client);  // its former connection, whose end was not seen here yet
  std::vector<ReportedLease> leases;
  leases.reserve(hello.leases.size());
  for (const ReportedRange& range : hello.leases) {
    leases.push_back({range.segment, range.segment_generation, range.offset, range.length});
  }
  return store_.reconnect(hello.client, hello.token, hello.reports_leases != 0 ? &leases : nullptr);
}

void ClientRegistry::fork(Connection& connection, std::uint64_t request) {
  const Status forked = register_child(connection, request);
  if (!forked.is_ok()) connections_.refuse(connection.owner(), request, forked);
}

Status ClientRegistry::register_child(Connection& connection, std::uint64_t request) {
  const ClientState* parent = store_.clients().find(*connection.client());
  if (parent == nullptr) return Status(Code::kInternal, "the parent is not a client");
  ClientIdentity identity = parent->identity;
  identity.pid = 0;  // the child tells, see note_process()
  identity.forked = true;
  ASSIGN_OR_RETURN(auto sockets, os::socket_pair(os::SocketKind::kStream));
  RETURN_IF_ERROR(os::set_nonblocking(sockets.first.get(), true));
  // The child's pins are at the same positions as the parent's, so its table has the same size.
  ASSIGN_OR_RETURN(Registration registered,
                   register_client(identity, store_.pins().reserved_pins(*connection.client())));
  Connection* child = connections_.add(std::move(sockets.first), connection.peer());
  if (child == nullptr) {
    client_died(registered.client);
    return Status(Code::kStoreFull, "the daemon cannot monitor another connection");
  }
  connections_.identify(*child, registered.client);
  connections_.refuse_descriptors(*child);  // as after a Hello, which a forked child does not send
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(registered.pin_table));
  fds.push_back(std::move(registered.liveness));
  fds.push_back(std::move(sockets.second));
  const ForkReply answer{registered.client, registered.token, store_.pins().reserved_pins(registered.client)};
  connections_.reply(connection.owner(), request, answer, std::move(fds));
  return Status::ok();
}

Result<std::uint32_t> ClientRegistry::grow_pins(std::uint32_t client, std::uint32_t pins) {
  const ClientState* state = store_.clients().find(client);
  const std::uint32_t reserved_pins = store_.pins().reserved_pins(client);
  if (state == nullptr || reserved_pins == 0) {
    return Status(Code::kInternal, concat("cannot read the pin table of client ", client, ": connect again"));
  }
  const std::uint32_t max_pins = state->identity.pin_capacity;
  if (pins > max_pins) {
    return Status(Code::kStoreFull,
                  concat("a process can pin at most ", max_pins, " different objects of the store, but client ", client,
                         " requests ", pins, ": release values that are no longer needed"));
  }
  if (pins <= reserved_pins) return reserved_pins;
  // Doubles the table, so that growing is rare.
  const std::uint32_t doubled = std::min(std::max(pins, 2 * reserved_pins), max_pins);
  const std::uint64_t before = pin_memory_bytes(reserved_pins, max_pins);
  std::uint32_t target = doubled;
  Status taken = store_.reserve_for_client(pin_memory_bytes(target, max_pins) - before);
  if (!taken.is_ok()) {
    target = pins;
    taken = store_.reserve_for_client(pin_memory_bytes(target, max_pins) - before);
  }
  RETURN_IF_ERROR(taken);
  const Result<std::uint32_t> grown = grow_pin_table(link_.fd(pin_table_tag(client)), max_pins, target);
  if (!grown.is_ok()) {
    store_.budget().release(BudgetItem::kPinTables, pin_memory_bytes(target, max_pins) - before);
    return grown.status();
  }
  store_.pins().grow(client, *grown);
  return *grown;
}

std::uint64_t ClientRegistry::pin_table_memory(std::uint32_t client) const {
  const ClientState* state = store_.clients().find(client);
  const std::uint32_t reserved_pins = store_.pins().reserved_pins(client);
  return state == nullptr || reserved_pins == 0 ? 0 : pin_memory_bytes(reserved_pins, state->identity.pin_capacity);
}

void ClientRegistry::watch_adopted_clients() {
  std::vector<std::uint32_t> dead_clients;
  for (const auto& [client, state] : store_.clients().all()) {
    const Status watched = watch_liveness(client);
    if (!watched.is_ok()) {
      log_warning("treating client ", client, " as dead: ", watched.message());
      dead_clients.push_back(client);
    }
  }
  for (const std::uint32_t client : dead_clients)
    client_died(client);
}

void ClientRegistry::client_died(std::uint32_t client) {
  connections_.close_of_client(client);
  liveness_.erase(client);
  store_.budget().release(BudgetItem::kPinTables, pin_table_memory(client));
  store_.client_died(client);
  store_.pins().remove(client);
  link_.drop(liveness_tag(client));
  link_.drop(pin_table_tag(client));
}

}  // namespace entrepot
