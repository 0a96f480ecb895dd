#include "daemon/object_requests.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "daemon/room_wait.h"
#include "daemon/sealing.h"

namespace entrepot {

namespace {

std::uint8_t presence_of(const LookupOutcome& outcome, bool gateway_serves) {
  if (outcome.code == Code::kObjectNotFound && gateway_serves) return kGatewayServes;
  return outcome.resident ? kResident : 0;
}

}  // namespace

void ObjectRequests::lease(Request& request) {
  LeaseRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.lease(
      request.origin(), body.min_bytes, body.want_bytes, body.timeout_ms,
      [this, held = *held](Result<LeaseGrant> granted) {
        if (!granted.is_ok()) return held.refuse(granted.status());
        std::vector<UniqueFd> fds;
        if (granted->first) {
          auto fd = segments_.writable(granted->segment, granted->generation);
          if (!fd.is_ok()) return held.refuse(fd.status());
          fds.push_back(fd.take());
        }
        LeaseReply reply;
        reply.segment = granted->segment;
        reply.segment_generation = granted->generation;
        reply.segment_bytes = granted->segment_bytes;
        reply.offset = granted->offset;
        reply.length = granted->length;
        reply.kind = granted->kind;
        held.reply(reply, std::move(fds));
      },
      request.type() == MessageType::kLeaseIsolated);
}

void ObjectRequests::unlease(Request& request) {
  UnleaseRequest body;
  if (!request.read(body)) return;
  request.answer(store_.unlease(request.client(), body.segment, body.offset, body.length, body.done_with_segment != 0));
}

void ObjectRequests::reserve(Request& request) {
  ReserveRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.reserve(request.origin(), body.number, body.bytes, body.timeout_ms, body.restores != 0,
                 [held = *held](const Status& granted) { held.answer(granted); });
}

void ObjectRequests::reservation(Request& request) {
  ReservationRequest body;
  if (!request.read(body)) return;
  const std::optional<Reservation> reservation = body.ends != 0 ? store_.end_reservation(request.origin(), body.number)
                                                                : store_.reservation(request.origin(), body.number);
  request.reply(reservation ? ReservationReply{1, reservation->bytes, reservation->used} : ReservationReply{});
}

void ObjectRequests::segment(Request& request) {
  SegmentRequest body;
  if (!request.read(body)) return;
  const SegmentPool& pool = store_.pool();
  if (!pool.is_live(body.segment)) {
    return request.answer(Status(Code::kInvalidArgument, concat("there is no segment ", body.segment)));
  }
  const std::uint32_t generation = pool.generation(body.segment);
  const bool may_write = pool.is_writer(body.segment, request.client()) ||
                         (body.writable == kIsolatedAccess && pool.may_pass_on(body.segment, request.client()));
  if (body.writable != kReadAccess && !may_write) {
    return request.answer(Status(Code::kAccessDenied, concat("segment ", body.segment, " is not leased to client ",
                                                             request.client(), ", so it may only be read")));
  }
  auto fd = body.writable != kReadAccess ? segments_.writable(body.segment, generation)
                                         : segments_.read_only(body.segment, generation);
  if (!fd.is_ok()) return request.answer(fd.status());
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd).value());
  request.reply(SegmentReply{body.segment, generation, pool.bytes(body.segment)}, std::move(fds));
}

void ObjectRequests::seal(Request& request) {
  SealRequest body;
  if (!request.read(body) || !request.within_batch(body.objects.size())) return;
  seal_objects(store_, request, std::move(body.objects),
               [](auto& to, std::vector<SealResult> results) { to.reply(SealReply{std::move(results)}); });
}

void ObjectRequests::lookup(Request& request) {
  LookupRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size())) return;
  const std::optional<HeldRequest> held = request.hold(kWaiterCost + body.ids.size());
  if (!held) return;
  store_.lookup(request.origin(), std::move(body.ids), body.timeout_ms, body.load_ms,
                [this, held = *held](const std::vector<LookupOutcome>& outcomes) {
                  LookupReply reply;
                  reply.results.reserve(outcomes.size());
                  for (const LookupOutcome& outcome : outcomes)
                    reply.results.push_back({outcome.code, outcome.slot, outcome.generation,
                                             presence_of(outcome, store_.gateway().is_expected()), outcome.message});
                  held.reply(reply);
                });
}

void ObjectRequests::remove(Request& request) {
  DeleteRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size())) return;
  DeleteReply reply{store_.remove(body.ids)};
  answer_when_recorded(store_, request, request.origin(), store_.unrecorded(body.ids),
                       [reply = std::move(reply)](auto& to, const Status& recorded) {
                         if (!recorded.is_ok()) return to.refuse(recorded);
                         to.reply(reply);
                       });
}

void ObjectRequests::remove_generations(Request& request) {
  DeleteGenerationsRequest body;
  if (!request.read(body) || !request.within_batch(body.objects.size())) return;
  std::vector<IdBytes> ids;
  std::vector<ObjectLife> lives;
  ids.reserve(body.objects.size());
  lives.reserve(body.objects.size());
  for (const ObjectGeneration& object : body.objects) {
    ids.push_back(object.id);
    lives.push_back({object.id, object.generation});
  }
  DeleteReply reply{store_.remove(lives)};
  answer_when_recorded(store_, request, request.origin(), store_.unrecorded(ids),
                       [reply = std::move(reply)](auto& to, const Status& recorded) {
                         if (!recorded.is_ok()) return to.refuse(recorded);
                         to.reply(reply);
                       });
}

void ObjectRequests::evict(Request& request) {
  EvictRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size())) return;
  EvictReply reply;
  for (const Status& status : store_.evict(body.ids))
    reply.results.push_back({status.code(), status.message()});
  request.reply(reply);
}

void ObjectRequests::hint(Request& request) {
  HintRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size())) return;
  const HintSpec spec{body.changed, body.priority, body.pinned != 0, body.locality_set, body.recompute_ns};
  PerObjectReply reply;
  for (const Status& status : store_.hint(body.ids, spec))
    reply.results.push_back({status.code(), status.message(), 0});
  request.reply(reply);
}

void ObjectRequests::consumed(Request& request) {
  ConsumedRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size())) return;
  const std::uint64_t cost = kWaiterCost + body.ids.size();
  serve_when_room(
      store_, request,
      [this, body = std::move(body), origin = request.origin(), results = std::vector<PerObjectResult>()](
          auto& to, bool last) mutable {
        while (results.size() < body.ids.size()) {
          const Result<std::uint32_t> left =
              store_.consumed(std::span(body.ids).subspan(results.size(), 1), body.consumer).front();
          if (awaits_room(store_, left.code(), last)) return false;
          results.push_back(left.is_ok() ? PerObjectResult{Code::kOk, {}, *left}
                                         : PerObjectResult{left.code(), left.status().message(), 0});
        }
        answer_when_recorded(store_, to, origin, store_.unrecorded(body.ids),
                             [results = std::move(results)](auto& answered, const Status& recorded) mutable {
                               if (!recorded.is_ok()) return answered.refuse(recorded);
                               answered.reply(PerObjectReply{std::move(results)});
                             });
        return true;
      },
      cost);
}

void ObjectRequests::list(Request& request) {
  ListRequest body;
  if (!request.read(body)) return;
  ListQuery query;
  query.all_sessions = body.all_sessions != 0;
  query.session = body.session;
  query.pattern = std::move(body.pattern);
  query.cursor = body.cursor;
  query.limit = body.limit;
  request.answer(store_.list_json(query));
}

void ObjectRequests::info(Request& request) {
  InfoRequest body;
  if (request.read(body)) request.answer(store_.info_json(body.id));
}

void ObjectRequests::wait_provisioned(Request& request) {
  WaitRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.wait_provisioned(request.origin(), body.timeout_ms, [held = *held](const Status& done) {
    if (!done.is_ok()) return held.refuse(done);
    held.reply(Empty{});
  });
}

}  // namespace entrepot
