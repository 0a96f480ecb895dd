// Requests about sessions and what belongs to them: locality sets and names.
#include "base/text.h"
#include "daemon/request.h"

namespace entrepot {

void Request::open_session() {
  OpenSessionRequest body;
  if (!read(body) || !is_text("scope", body.scope) || !is_text("session's name", body.session)) return;
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
  if (!read(body) || !is_text("locality set's name", body.name)) return;
  const SetChange change{body.changed, SetAttributes::unpack(body.attributes)};
  if (change.attributes.pack() != body.attributes) {
    return answer(
        Status(Code::kInvalidArgument,
               concat("the attributes of the locality set have a value that this daemon does not support, or a ",
                      "priority outside the range ", kMinPriority, " to ", kMaxPriority)));
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
  if (!read(body) || !is_text("name", body.name)) return;
  answer(state_.store.bind_name(body.session, body.name, body.id, body.replace != 0));
}

void Request::resolve_name() {
  NameRequest body;
  if (!read(body) || !begin_waiting(kWaiterCost)) return;
  state_.store.resolve_name(origin(), body.session, body.name, body.timeout_ms,
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

}  // namespace entrepot
