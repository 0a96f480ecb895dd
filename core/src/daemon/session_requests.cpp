#include "daemon/session_requests.h"

#include <utility>

#include "base/text.h"
#include "daemon/room_wait.h"

namespace entrepot {

void SessionRequests::open_session(Request& request) {
  OpenSessionRequest body;
  if (!request.read(body) || !request.is_text("scope", body.scope) || !request.is_text("session's name", body.session))
    return;
  serve_when_room(store_, request, [this, client = request.client(), body = std::move(body)](auto& to, bool last) {
    const SessionLimits limits{body.ttl_seconds, body.limit_bytes, body.limit_objects};
    const auto opened = store_.open_session(client, body.scope, body.session, body.set_limits != 0 ? &limits : nullptr);
    if (awaits_room(store_, opened.code(), last)) return false;
    Status done = opened.status();
    if (done.is_ok() && body.deletes_consumed != 0) {
      done = store_.set_deletes_consumed(*opened, body.deletes_consumed == 2);
    }
    if (done.is_ok()) {
      to.reply(OpenSessionReply{*opened, 0});
    } else {
      to.answer(done);
    }
    return true;
  });
}

void SessionRequests::close_session(Request& request) {
  CloseSessionRequest body;
  if (request.read(body)) request.answer(store_.close_session(request.client(), body.session));
}

void SessionRequests::remove_session(Request& request) {
  RemoveSessionRequest body;
  if (!request.read(body)) return;
  const Status removed = store_.remove_session(body.scope, body.session);
  answer_when_recorded(
      store_, request, request.origin(), store_.unrecorded_session(body.scope, body.session),
      [removed](auto& to, const Status& recorded) { to.answer(removed.is_ok() ? recorded : removed); });
}

void SessionRequests::remove_unused(Request& request) {
  RemoveUnusedRequest body;
  if (!request.read(body)) return;
  const auto outcome = store_.remove_unused_session(body.scope, body.session, body.last_used_unix_ns);
  if (!outcome.is_ok()) return request.answer(outcome.status());
  const RemoveUnusedReply reply{static_cast<std::uint8_t>(outcome->removed ? 1 : 0), outcome->opened_by};
  answer_when_recorded(store_, request, request.origin(),
                       outcome->removed ? store_.unrecorded_session(body.scope, body.session) : 0,
                       [reply](auto& to, const Status& recorded) {
                         if (!recorded.is_ok()) return to.refuse(recorded);
                         to.reply(reply);
                       });
}

void SessionRequests::define_set(Request& request) {
  DefineSetRequest body;
  if (!request.read(body) || !request.is_text("locality set's name", body.name)) return;
  const SetChange change{body.changed, SetAttributes::unpack(body.attributes)};
  if (change.attributes.pack() != body.attributes) {
    return request.answer(
        Status(Code::kInvalidArgument,
               concat("the attributes of the locality set have a value that this daemon does not support, or a ",
                      "priority outside the range ", kMinPriority, " to ", kMaxPriority)));
  }
  serve_when_room(store_, request, [this, body = std::move(body), change](auto& to, bool last) {
    const Result<SetGrant> granted = store_.define_set(body.session, body.name, body.set, change);
    if (awaits_room(store_, granted.code(), last)) return false;
    if (granted.is_ok()) {
      to.reply(DefineSetReply{granted->handle, granted->attributes.pack()});
    } else {
      to.answer(granted.status());
    }
    return true;
  });
}

void SessionRequests::list_sets(Request& request) {
  ListSetsRequest body;
  if (request.read(body)) request.answer(store_.sets_json(body.session));
}

void SessionRequests::bind_name(Request& request) {
  NameRequest body;
  if (!request.read(body) || !request.is_text("name", body.name)) return;
  serve_when_room(store_, request, [this, body = std::move(body), origin = request.origin()](auto& to, bool last) {
    const Result<NameOutcome> bound = store_.bind_name(body.session, body.name, body.id, body.replace != 0);
    if (awaits_room(store_, bound.code(), last)) return false;
    answer_when_recorded(store_, to, origin, bound.is_ok() ? store_.unrecorded(body.session, body.name) : 0,
                         [bound](auto& answered, const Status& recorded) {
                           if (!recorded.is_ok()) return answered.answer(recorded);
                           answered.answer(bound);
                         });
    return true;
  });
}

void SessionRequests::resolve_name(Request& request) {
  NameRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.resolve_name(request.origin(), body.session, body.name, body.timeout_ms,
                      [held = *held](const Result<NameOutcome>& outcome) {
                        if (!outcome.is_ok()) return held.refuse(outcome.status());
                        held.reply(NameReply{outcome->id, outcome->generation});
                      });
}

void SessionRequests::unbind_name(Request& request) {
  NameRequest body;
  if (!request.read(body)) return;
  const Status unbound = store_.unbind_name(body.session, body.name);
  // Also if it was not bound: another request may just have unbound it.
  answer_when_recorded(
      store_, request, request.origin(), store_.unrecorded(body.session, body.name),
      [unbound](auto& to, const Status& recorded) { to.answer(recorded.is_ok() ? unbound : recorded); });
}

}  // namespace entrepot
