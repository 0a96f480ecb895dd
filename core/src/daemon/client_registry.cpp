// Client registration: connecting, reconnecting, forking, and death.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "daemon/connections.h"
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

Status ServerState::check_versions(const Connection& connection, const Hello& hello) const {
  if (connection.peer.uid != os::current_uid()) {
    return Status(Code::kAccessDenied,
                  concat("this store belongs to user ", os::current_uid(), ", but the caller is user ",
                         connection.peer.uid, ": each user has their own store; unset ENTREPOT_ADDRESS to use yours"));
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

void ServerState::hello(Connection& connection, Frame& frame) {
  const std::uint64_t request = frame.header.request;
  const std::uint64_t owner = connection.owner;
  const auto fail = [&](const Status& status) {
    refuse(owner, request, status);
    connection.closing = true;
  };
  Hello hello;
  if (frame.header.type != MessageType::kHello || !from_wire(frame.body, hello)) {
    return fail(Status(Code::kInvalidArgument, "the first message of a connection must be Hello"));
  }
  if (const Status fits = check_versions(connection, hello); !fits.is_ok()) return fail(fits);
  if (hello.leases.size() > kMaxReportedRanges) {
    return fail(Status(Code::kInvalidArgument,
                       concat("a Hello with ", hello.leases.size(), " leased ranges exceeds the limit of ",
                              kMaxReportedRanges, ": connect again and write fewer objects at once")));
  }

  if (frame.lost_fds()) return fail(descriptors_lost_error());

  HelloReply answer;
  std::vector<UniqueFd> fds;
  auto regions = memory.client_fds();
  if (!regions.is_ok()) return fail(regions.status());
  for (UniqueFd& fd : *regions)
    fds.push_back(std::move(fd));
  if (hello.token != 0) {
    if (const Status back = reconnect(connection, hello, frame.fds); !back.is_ok()) return fail(back);
    answer.client = hello.client;
    answer.token = hello.token;
  } else {
    ClientIdentity identity;
    identity.pid = connection.peer.pid;
    identity.uid = connection.peer.uid;
    identity.pin_capacity = std::clamp<std::uint32_t>(hello.pin_capacity, 1, kMaxPinsPerClient);
    identity.label = to_utf8(hello.label, kLabelMaxBytes);  // program names are arbitrary
    auto registered = register_client(identity);
    if (!registered.is_ok()) return fail(registered.status());
    answer.client = registered->client;
    answer.token = registered->token;
    fds.push_back(std::move(registered->pin_table));
    fds.push_back(std::move(registered->liveness));
  }
  connection.client = answer.client;
  connection.frames.refuse_descriptors();
  answer.daemon_version = ENTREPOT_VERSION;
  answer.instance = memory.instance();
  answer.incarnation = memory.root().incarnation.load(std::memory_order_relaxed);
  answer.host = store.options().host;
  answer.capacity_bytes = store.options().capacity_bytes;
  answer.daemon_pid = static_cast<std::uint32_t>(os::current_pid());
  reply(owner, request, answer, std::move(fds));
}

Result<ServerState::Registration> ServerState::register_client(const ClientIdentity& identity, std::uint32_t pins) {
  RETURN_IF_ERROR(store.check_client_limit(identity.forked));
  const std::uint64_t memory_bytes = pin_memory_bytes(pins, identity.pin_capacity);
  ASSIGN_OR_RETURN(const std::uint32_t client, store.begin_client());
  if (const Status taken = store.reserve_for_client(memory_bytes); !taken.is_ok()) {
    store.abandon_client(client);
    return taken;
  }
  Registration registration;
  registration.client = client;
  registration.token = os::random_u64();
  if (const Status held_status = hold_client_descriptors(client, identity, pins, registration); !held_status.is_ok()) {
    store.pins().remove(client);
    store.budget().release(BudgetItem::kPinTables, memory_bytes);
    poller.remove(link.fd(liveness_tag(client)));
    link.drop(pin_table_tag(client));
    link.drop(liveness_tag(client));
    store.abandon_client(client);
    return held_status;
  }
  store.publish_client(client, registration.token, identity);
  return registration;
}

Status ServerState::hold_client_descriptors(std::uint32_t client, const ClientIdentity& identity, std::uint32_t pins,
                                            Registration& registration) {
  ASSIGN_OR_RETURN(UniqueFd table, create_pin_table(identity.pin_capacity, pins));
  ASSIGN_OR_RETURN(registration.pin_table, os::duplicate(table.get()));
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kStream));
  registration.liveness = std::move(pair.second);
  link.hold(pin_table_tag(client), std::move(table));
  link.hold(liveness_tag(client), std::move(pair.first));
  if (!link.is_held_by_keeper(liveness_tag(client))) {  // the second of the two: they are sent in order
    return Status(Code::kStoreUnavailable,
                  concat("the store's keeper (process ", link.keeper_pid(), ") is stopped or being replaced, so a new ",
                         "client's pins would be lost if the daemon died now: try again when it runs"),
                  true);
  }
  RETURN_IF_ERROR(store.pins().add(client, link.fd(pin_table_tag(client)), identity.pin_capacity));
  return watch_liveness(client);
}

Status ServerState::watch_liveness(std::uint32_t client) {
  const int fd = link.fd(liveness_tag(client));
  if (fd < 0) return Status(Code::kInternal, concat("client ", client, " has no liveness socket"));
  return poller.add(fd, watch_key(WatchKind::kLiveness, client), false, false);
}

Status ServerState::reconnect(Connection& connection, const Hello& hello, const std::vector<UniqueFd>& fds) {
  const int held_table = link.fd(pin_table_tag(hello.client));
  if (fds.empty() || held_table < 0) {
    return Status(Code::kAccessDenied,
                  concat("client ", hello.client, " is unknown to this store, or did not send its pin table"));
  }
  ASSIGN_OR_RETURN(const bool same, os::same_file(held_table, fds.front().get()));
  if (!same) return Status(Code::kAccessDenied, concat("the pin table sent is not that of client ", hello.client));
  const ClientState* state = store.clients().find(hello.client);
  if (state == nullptr || state->token != hello.token) {  // before anything is changed for that client
    return Status(Code::kAccessDenied, concat("the token sent is not that of client ", hello.client));
  }
  if (store.pins().is_unreadable(hello.client)) {
    const Status added = store.pins().add(hello.client, held_table, state->identity.pin_capacity);
    if (!added.is_ok()) log_error("the pin table of client ", hello.client, ": ", added.message());
    store.budget().charge(BudgetItem::kPinTables, pin_table_memory(hello.client));
  }
  for (const auto& [owner, other] : connections) {
    if (owner != connection.owner && other->client == hello.client) {
      close_connection(owner);  // its former connection, whose end was not seen here yet
      break;
    }
  }
  std::vector<ReportedLease> leases;
  leases.reserve(hello.leases.size());
  for (const ReportedRange& range : hello.leases) {
    leases.push_back({range.segment, range.segment_generation, range.offset, range.length});
  }
  return store.reconnect(hello.client, hello.token, hello.reports_leases != 0 ? &leases : nullptr);
}

void ServerState::fork(Connection& connection, std::uint64_t request) {
  const std::uint64_t owner = connection.owner;
  const ClientState* parent = store.clients().find(*connection.client);
  if (parent == nullptr) return refuse(owner, request, Status(Code::kInternal, "the parent is not a client"));
  ClientIdentity identity = parent->identity;
  identity.pid = 0;  // not known before the fork
  identity.forked = true;
  auto sockets = os::socket_pair(os::SocketKind::kStream);
  if (!sockets.is_ok()) return refuse(owner, request, sockets.status());
  if (const Status set = os::set_nonblocking(sockets->first.get(), true); !set.is_ok()) {
    return refuse(owner, request, set);
  }
  // The child's pins are at the same positions as the parent's, so its table has the same size.
  auto registered = register_client(identity, store.pins().reserved_pins(*connection.client));
  if (!registered.is_ok()) return refuse(owner, request, registered.status());
  Connection* child = add_connection(std::move(sockets->first), connection.peer);
  if (child == nullptr) {
    client_died(registered->client);
    return refuse(owner, request, Status(Code::kStoreFull, "the daemon cannot monitor another connection"));
  }
  child->client = registered->client;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(registered->pin_table));
  fds.push_back(std::move(registered->liveness));
  fds.push_back(std::move(sockets->second));
  reply(owner, request,
        ForkReply{registered->client, registered->token, store.pins().reserved_pins(registered->client)},
        std::move(fds));
}

Result<std::uint32_t> ServerState::grow_pins(std::uint32_t client, std::uint32_t pins) {
  const ClientState* state = store.clients().find(client);
  const std::uint32_t reserved_pins = store.pins().reserved_pins(client);
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
  Status taken = store.reserve_for_client(pin_memory_bytes(target, max_pins) - before);
  if (!taken.is_ok()) {
    target = pins;
    taken = store.reserve_for_client(pin_memory_bytes(target, max_pins) - before);
  }
  RETURN_IF_ERROR(taken);
  const Result<std::uint32_t> grown = grow_pin_table(link.fd(pin_table_tag(client)), max_pins, target);
  if (!grown.is_ok()) {
    store.budget().release(BudgetItem::kPinTables, pin_memory_bytes(target, max_pins) - before);
    return grown.status();
  }
  store.pins().grow(client, *grown);
  return *grown;
}

std::uint64_t ServerState::pin_table_memory(std::uint32_t client) const {
  const ClientState* state = store.clients().find(client);
  const std::uint32_t reserved_pins = store.pins().reserved_pins(client);
  return state == nullptr || reserved_pins == 0 ? 0 : pin_memory_bytes(reserved_pins, state->identity.pin_capacity);
}

void ServerState::watch_adopted_clients() {
  std::vector<std::uint32_t> dead_clients;
  for (const auto& [client, state] : store.clients().all()) {
    const Status watched = watch_liveness(client);
    if (!watched.is_ok()) {
      log_warning("treating client ", client, " as dead: ", watched.message());
      dead_clients.push_back(client);
    }
  }
  for (const std::uint32_t client : dead_clients)
    client_died(client);
}

void ServerState::client_died(std::uint32_t client) {
  for (const auto& [owner, connection] : connections) {
    if (connection->client == client) {
      close_connection(owner);
      break;
    }
  }
  if (const int fd = link.fd(liveness_tag(client)); fd >= 0) poller.remove(fd);
  store.budget().release(BudgetItem::kPinTables, pin_table_memory(client));
  store.client_died(client);
  store.pins().remove(client);
  link.drop(liveness_tag(client));
  link.drop(pin_table_tag(client));
}

}  // namespace entrepot
