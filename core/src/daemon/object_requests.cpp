// Requests of ready connections about memory, objects and the store; those about sessions: session_requests.cpp.
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "daemon/request.h"
#include "os/process.h"

namespace entrepot {

namespace {

constexpr std::size_t kShownTextBytes = 60;

// The strings stay in `object`.
SealSpec spec_of(const SealObject& object) {
  SealSpec spec;
  spec.id = object.id;
  spec.session = object.session;
  spec.replace = object.replace != 0;
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

}  // namespace

Status Request::check_text(std::string_view what, std::string_view text) {
  const std::size_t end = utf8_valid_length(text);
  if (end == text.size()) return Status::ok();
  return Status(Code::kInvalidArgument,
                concat("the ", what, " '", to_utf8(text, kShownTextBytes), "' is not UTF-8: byte ", end, " is ",
                       static_cast<std::uint8_t>(text[end]), ", which cannot start a character; encode it as UTF-8"));
}

void Request::lease() {
  LeaseRequest body;
  if (!read(body) || !begin_waiting(kWaiterCost)) return;
  state_.store.lease(origin(), body.min_bytes, body.want_bytes, body.timeout_ms,
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
    if (const Status sound = check_text("name", object.name); !sound.is_ok()) {
      reply.results.push_back({sound.code(), sound.message(), 0, 0});
      continue;
    }
    const SealOutcome outcome = state_.store.seal(*connection_.client, spec_of(object));
    reply.results.push_back({outcome.status.code(), outcome.status.message(), outcome.slot, outcome.generation});
  }
  answer(reply);
}

void Request::lookup() {
  LookupRequest body;
  if (!read(body) || !within_batch(body.ids.size())) return;
  const std::uint64_t cost = kWaiterCost + body.ids.size();
  if (!begin_waiting(cost)) return;
  state_.store.lookup(
      origin(), std::move(body.ids), body.timeout_ms, body.load_ms,
      [&state = state_, owner = owner_, number = number_, cost](const std::vector<LookupOutcome>& found) {
        state.end_wait(owner, cost);
        LookupReply reply;
        reply.results.reserve(found.size());
        for (const LookupOutcome& outcome : found)
          reply.results.push_back({outcome.code, outcome.slot, outcome.generation,
                                   static_cast<std::uint8_t>(outcome.resident ? 1 : 0), outcome.message});
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
  if (!read(body) || !begin_waiting(kWaiterCost)) return;
  state_.store.wait_provisioned(origin(), body.timeout_ms,
                                [&state = state_, owner = owner_, number = number_](const Status& done) {
                                  state.end_wait(owner, kWaiterCost);
                                  if (!done.is_ok()) return state.refuse(owner, number, done);
                                  state.reply(owner, number, Empty{});
                                });
}

void Request::grow_pins() {
  GrowPinsRequest body;
  if (!read(body)) return;
  const Result<std::uint32_t> reserved_pins = state_.grow_pins(*connection_.client, body.pins);
  if (!reserved_pins.is_ok()) return answer(reserved_pins.status());
  answer(GrowPinsReply{*reserved_pins});
}

void Request::upgrade() {
  UpgradeRequest body;
  if (!read(body) || !begin_waiting(kWaiterCost)) return;
  state_.upgrade(body.program, [&state = state_, owner = owner_, number = number_](const Result<std::string>& version) {
    state.end_wait(owner, kWaiterCost);
    if (!version.is_ok()) return state.refuse(owner, number, version.status());
    state.reply(owner, number, UpgradeReply{*version});
  });
}

void ServerState::handle(Connection& connection, Frame& frame) {
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
      return store.rescan_pins();
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
      return request.answer(JsonReply{store.status_json(daemon_status())});
    case MessageType::kWaitProvisioned:
      return request.wait_provisioned();
    case MessageType::kFork:
      return fork(connection, frame.header.request);
    case MessageType::kGrowPins:
      return request.grow_pins();
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
         Status(Code::kInvalidArgument,
                concat("unexpected message type ", frame.header.type, ": is the client newer than this daemon?")));
}

}  // namespace entrepot
