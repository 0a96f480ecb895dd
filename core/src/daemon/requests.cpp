// Requests of ready connections: from the wire to the store and back.
#include <utility>

#include "base/text.h"
#include "daemon/server_state.h"
#include "os/process.h"

namespace entrepot {

namespace {

Status too_many(std::size_t count) {
  return Status(Code::kInvalidArgument,
                concat(count, " objects in one request are over the limit of ", kMaxBatch, ": send several"));
}

// The texts stay in `object`.
SealSpec spec_of(const SealObject& object) {
  SealSpec spec;
  spec.id = object.id;
  spec.session = object.session;
  spec.replace = (object.flags & kSealReplace) != 0;
  spec.blobs.reserve(object.blobs.size());
  for (const NewBlob& blob : object.blobs)
    spec.blobs.push_back({blob.segment, blob.offset, blob.length});
  spec.buffers.reserve(object.buffers.size());
  for (const SealBuffer& buffer : object.buffers) {
    spec.buffers.push_back({buffer.blob, buffer.generation, buffer.offset, buffer.length});
  }
  spec.tree = object.tree;
  spec.payload = object.payload;
  spec.name = object.name;
  spec.locality_set = object.locality_set;
  spec.consumers = object.consumers;
  return spec;
}

// One request of one connection, with what is needed to answer it now or later.
class Request {
 public:
  Request(ServerState& state, Connection& connection, const IncomingFrame& frame)
      : state_(state),
        connection_(connection),
        frame_(frame),
        owner_(connection.owner),
        number_(frame.header.request) {}

  template <class Body>
  [[nodiscard]] bool read(Body& body) {
    if (from_wire(frame_.body, body)) return true;
    state_.refuse(owner_, number_,
                  Status(Code::kInvalidArgument, concat("a request of type ", frame_.header.type, " cannot be read")));
    connection_.closing = true;
    return false;
  }
  [[nodiscard]] bool within_batch(std::size_t count) {
    if (count <= kMaxBatch) return true;
    state_.refuse(owner_, number_, too_many(count));
    return false;
  }
  // Takes the cost of a request over `ids` that may wait; its answer gives it back.
  [[nodiscard]] bool may_wait(std::uint64_t cost) {
    const Status room = state_.begin_wait(connection_, cost);
    if (!room.is_ok()) state_.refuse(owner_, number_, room);
    return room.is_ok();
  }
  template <class Body>
  void answer(const Body& body) {
    state_.reply(owner_, number_, body);
  }
  void answer(const Status& status) {
    if (status.is_ok()) {
      state_.reply(owner_, number_, Empty{});
    } else {
      state_.refuse(owner_, number_, status);
    }
  }
  void answer(const Result<std::string>& json) {
    if (json.is_ok()) {
      state_.reply(owner_, number_, JsonReply{*json});
    } else {
      state_.refuse(owner_, number_, json.status());
    }
  }
  void answer(const Result<NameOutcome>& name) {
    if (name.is_ok()) {
      state_.reply(owner_, number_, NameReply{name->id, name->generation});
    } else {
      state_.refuse(owner_, number_, name.status());
    }
  }
  [[nodiscard]] Asker asker() const { return {*connection_.client, owner_}; }

  void lease();
  void unlease();
  void segment();
  void seal();
  void lookup();
  void remove();
  void evict();
  void open_session();
  void close_session();
  void remove_session();
  void remove_unused();
  void define_set();
  void list_sets();
  void hint();
  void consumed();
  void bind_name();
  void resolve_name();
  void unbind_name();
  void list();
  void info();
  void wait_provisioned();
  void upgrade();

 private:
  ServerState& state_;
  Connection& connection_;
  const IncomingFrame& frame_;
  std::uint64_t owner_;
  std::uint64_t number_;
};

void Request::lease() {
  LeaseRequest body;
  if (!read(body) || !may_wait(kWaiterCost)) return;
  state_.store.lease(asker(), body.min_bytes, body.want_bytes, body.timeout_ms,
                     [&state = state_, owner = owner_, number = number_](Result<LeaseGrant> granted) {
                       state.end_wait(owner, kWaiterCost);
                       if (!granted.is_ok()) return state.refuse(owner, number, granted.status());
                       std::vector<UniqueFd> fds;
                       if (granted->first) {
                         auto fd = state.segments.writable(granted->segment, granted->generation);
                         if (!fd.is_ok()) return state.refuse(owner, number, fd.status());
                         fds.push_back(std::move(fd).value());
                       }
                       LeaseReply reply;
                       reply.segment = granted->segment;
                       reply.segment_generation = granted->generation;
                       reply.segment_bytes = granted->segment_bytes;
                       reply.offset = granted->offset;
                       reply.length = granted->length;
                       reply.kind = granted->kind;
                       state.reply(owner, number, reply, std::move(fds));
                     });
}

void Request::unlease() {
  UnleaseRequest body;
  if (!read(body)) return;
  answer(
      state_.store.unlease(*connection_.client, body.segment, body.offset, body.length, body.done_with_segment != 0));
}

void Request::segment() {
  SegmentRequest body;
  if (!read(body)) return;
  const SegmentPool& pool = state_.store.pool();
  if (!pool.is_live(body.segment)) {
    return answer(Status(Code::kInvalidArgument, concat("there is no segment ", body.segment)));
  }
  const std::uint32_t generation = pool.generation(body.segment);
  if (body.writable != 0 && !pool.is_writer(body.segment, *connection_.client)) {
    return answer(Status(Code::kAccessDenied, concat("segment ", body.segment, " is not leased to client ",
                                                     *connection_.client, ", so it may only be read")));
  }
  auto fd = body.writable != 0 ? state_.segments.writable(body.segment, generation)
                               : state_.segments.read_only(body.segment, generation);
  if (!fd.is_ok()) return answer(fd.status());
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd).value());
  state_.reply(owner_, number_, SegmentReply{body.segment, generation, pool.bytes(body.segment)}, std::move(fds));
}

void Request::seal() {
  SealRequest body;
  if (!read(body) || !within_batch(body.objects.size())) return;
  SealReply reply;
  reply.results.reserve(body.objects.size());
  for (const SealObject& object : body.objects) {
    const SealOutcome outcome = state_.store.seal(*connection_.client, spec_of(object));
    reply.results.push_back({outcome.status.code(), outcome.status.message(), outcome.slot, outcome.generation});
  }
  answer(reply);
}

void Request::lookup() {
  LookupRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  const std::uint64_t cost = kWaiterCost + body.ids.size();
  if (!may_wait(cost)) return;
  state_.store.lookup(
      asker(), std::move(body.ids), body.timeout_ms, body.load_ms,
      [&state = state_, owner = owner_, number = number_, cost](const std::vector<LookupOutcome>& found) {
        state.end_wait(owner, cost);
        LookupReply reply;
        reply.results.reserve(found.size());
        for (const LookupOutcome& one : found)
          reply.results.push_back(
              {one.code, one.slot, one.generation, static_cast<std::uint8_t>(one.resident ? 1 : 0), one.message});
        state.reply(owner, number, reply);
      });
}

void Request::remove() {
  DeleteRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  answer(DeleteReply{state_.store.remove(body.ids)});
}

void Request::evict() {
  EvictRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  EvictReply reply;
  for (const Status& status : state_.store.evict(body.ids))
    reply.results.push_back({status.code(), status.message()});
  answer(reply);
}

void Request::open_session() {
  OpenSessionRequest body;
  if (!read(body)) return;
  const SessionLimits limits{body.ttl_seconds, body.limit_bytes, body.limit_objects};
  const auto opened =
      state_.store.open_session(owner_, body.scope, body.session, body.set_limits != 0 ? &limits : nullptr);
  if (!opened.is_ok()) return answer(opened.status());
  if (body.deletes_consumed != 0) {
    const Status set = state_.store.set_deletes_consumed(*opened, body.deletes_consumed == 2);
    if (!set.is_ok()) return answer(set);
  }
  answer(OpenSessionReply{*opened, 0});
}

void Request::close_session() {
  CloseSessionRequest body;
  if (read(body)) answer(state_.store.close_session(owner_, body.session));
}

void Request::remove_session() {
  RemoveSessionRequest body;
  if (read(body)) answer(state_.store.remove_session(body.scope, body.session));
}

void Request::remove_unused() {
  RemoveUnusedRequest body;
  if (!read(body)) return;
  const auto outcome = state_.store.remove_unused_session(body.scope, body.session, body.last_used_unix_ns);
  if (!outcome.is_ok()) return answer(outcome.status());
  answer(RemoveUnusedReply{static_cast<std::uint8_t>(outcome->removed ? 1 : 0), outcome->opened_by});
}

void Request::define_set() {
  DefineSetRequest body;
  if (!read(body)) return;
  const SetChange change{body.changed, SetAttributes::unpack(body.attributes)};
  if (change.attributes.pack() != body.attributes) {
    return answer(
        Status(Code::kInvalidArgument,
               concat("the attributes of the locality set have a number that this daemon does not know, or a ",
                      "priority beyond ", kMinPriority, " to ", kMaxPriority)));
  }
  const Result<SetGrant> granted = state_.store.define_set(body.session, body.name, body.set, change);
  if (!granted.is_ok()) return answer(granted.status());
  answer(DefineSetReply{granted->handle, granted->attributes.pack()});
}

void Request::list_sets() {
  ListSetsRequest body;
  if (read(body)) answer(state_.store.sets_json(body.session));
}

void Request::hint() {
  HintRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  const HintSpec spec{body.changed, body.priority, body.pinned != 0, body.locality_set, body.recompute_ns};
  PerObjectReply reply;
  for (const Status& status : state_.store.hint(body.ids, spec))
    reply.results.push_back({status.code(), status.message(), 0});
  answer(reply);
}

void Request::consumed() {
  ConsumedRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  PerObjectReply reply;
  for (const Result<std::uint32_t>& left : state_.store.consumed(body.ids, body.consumer)) {
    if (left.is_ok()) {
      reply.results.push_back({Code::kOk, {}, *left});
    } else {
      reply.results.push_back({left.status().code(), left.status().message(), 0});
    }
  }
  answer(reply);
}

void Request::bind_name() {
  NameRequest body;
  if (read(body)) answer(state_.store.bind_name(body.session, body.name, body.id, body.replace != 0));
}

void Request::resolve_name() {
  NameRequest body;
  if (!read(body) || !may_wait(kWaiterCost)) return;
  state_.store.resolve_name(asker(), body.session, body.name, body.timeout_ms,
                            [&state = state_, owner = owner_, number = number_](const Result<NameOutcome>& found) {
                              state.end_wait(owner, kWaiterCost);
                              if (!found.is_ok()) return state.refuse(owner, number, found.status());
                              state.reply(owner, number, NameReply{found->id, found->generation});
                            });
}

void Request::unbind_name() {
  NameRequest body;
  if (read(body)) answer(state_.store.unbind_name(body.session, body.name));
}

void Request::list() {
  ListRequest body;
  if (!read(body)) return;
  ListQuery query;
  query.all_sessions = body.all_sessions != 0;
  query.session = body.session;
  query.pattern = std::move(body.pattern);
  query.cursor = body.cursor;
  query.limit = body.limit;
  answer(state_.store.list_json(query));
}

void Request::info() {
  InfoRequest body;
  if (read(body)) answer(state_.store.info_json(body.id));
}

void Request::wait_provisioned() {
  WaitRequest body;
  if (!read(body) || !may_wait(kWaiterCost)) return;
  state_.store.wait_provisioned(asker(), body.timeout_ms,
                                [&state = state_, owner = owner_, number = number_](const Status& done) {
                                  state.end_wait(owner, kWaiterCost);
                                  if (!done.is_ok()) return state.refuse(owner, number, done);
                                  state.reply(owner, number, Empty{});
                                });
}

void Request::upgrade() {
  UpgradeRequest body;
  if (!read(body) || !may_wait(kWaiterCost)) return;
  state_.upgrade(body.program, [&state = state_, owner = owner_, number = number_](const Result<std::string>& version) {
    state.end_wait(owner, kWaiterCost);
    if (!version.is_ok()) return state.refuse(owner, number, version.status());
    state.reply(owner, number, UpgradeReply{*version});
  });
}

}  // namespace

void ServerState::handle(Connection& connection, IncomingFrame& frame) {
  if (!connection.client) return hello(connection, frame);
  Request request(*this, connection, frame);
  switch (frame.header.type) {
    case MessageType::kLease:
      return request.lease();
    case MessageType::kUnlease:
      return request.unlease();
    case MessageType::kSegment:
      return request.segment();
    case MessageType::kSeal:
      return request.seal();
    case MessageType::kLookup:
      return request.lookup();
    case MessageType::kDelete:
      return request.remove();
    case MessageType::kEvict:
      return request.evict();
    case MessageType::kReleased:
      return store.released();
    case MessageType::kOpenSession:
      return request.open_session();
    case MessageType::kCloseSession:
      return request.close_session();
    case MessageType::kRemoveSession:
      return request.remove_session();
    case MessageType::kRemoveUnused:
      return request.remove_unused();
    case MessageType::kListSessions:
      return request.answer(JsonReply{store.sessions_json()});
    case MessageType::kDefineSet:
      return request.define_set();
    case MessageType::kListSets:
      return request.list_sets();
    case MessageType::kHint:
      return request.hint();
    case MessageType::kConsumed:
      return request.consumed();
    case MessageType::kBindName:
      return request.bind_name();
    case MessageType::kResolveName:
      return request.resolve_name();
    case MessageType::kUnbindName:
      return request.unbind_name();
    case MessageType::kList:
      return request.list();
    case MessageType::kInfo:
      return request.info();
    case MessageType::kStatus:
      return request.answer(JsonReply{store.status_json(facts())});
    case MessageType::kWaitProvisioned:
      return request.wait_provisioned();
    case MessageType::kFork:
      return fork(connection, frame.header.request);
    case MessageType::kShutdown:
      request.answer(Status::ok());
      stopping = true;
      return;
    case MessageType::kUpgrade:
      return request.upgrade();
    case MessageType::kHello:
    case MessageType::kReply:
    case MessageType::kError:
      break;
  }
  refuse(connection.owner, frame.header.request,
         Status(Code::kInvalidArgument, concat("a ready connection does not send type ", frame.header.type,
                                               ": is the client of a newer version?")));
}

}  // namespace entrepot
