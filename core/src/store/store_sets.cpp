// Requests about locality sets, hints and consumers.
#include <algorithm>

#include "store/store.h"

namespace entrepot {
namespace {

Status not_found_error(const IdBytes& id) {
  return {Code::kObjectNotFound, concat("object ", to_hex(id), " is not in the store")};
}

}  // namespace

Result<SetGrant> Store::define_set(std::uint32_t session, std::string_view name, std::uint32_t set,
                                   const SetChange& change) {
  ASSIGN_OR_RETURN(const std::uint32_t session_index, sessions_.index_of(session));
  std::string text(name);
  if (set != 0) {
    ASSIGN_OR_RETURN(const std::uint32_t set_index, sets_.index_of(set, session_index));
    text = sets_.name(set_index);
  }
  ASSIGN_OR_RETURN(const std::uint32_t index,
                   room_.with_room([&] { return sets_.define(session_index, text, change); }));
  pager_.define_set(sets_.policy_number(session_index, sets_.field_of(index)), sets_.attributes(index));
  return SetGrant{sets_.handle(index), sets_.attributes(index)};
}

void Store::sync_locality_sets() {
  for (const std::uint32_t session : sessions_.live()) {
    for (const std::uint32_t index : sets_.of_session(session))
      pager_.define_set(sets_.policy_number(session, sets_.field_of(index)), sets_.attributes(index));
  }
}

void Store::drop_sets(std::uint32_t session) {
  for (const std::uint32_t index : sets_.of_session(session))
    pager_.undefine_set(sets_.policy_number(session, sets_.field_of(index)));
  pager_.undefine_set(sets_.policy_number(session, 0));
  sets_.drop_session(session);
}

std::vector<Status> Store::hint(std::span<const IdBytes> ids, const HintSpec& hint) {
  std::vector<Status> results;
  results.reserve(ids.size());
  for (const IdBytes& id : ids)
    results.push_back(apply_hint(id, hint));
  return results;
}

Status Store::apply_hint(const IdBytes& id, const HintSpec& hint) {
  const auto slot = objects_.find(id);
  if (!slot) return not_found_error(id);
  if ((hint.fields & kHintPriority) != 0 && (hint.priority < kMinPriority || hint.priority > kMaxPriority)) {
    return {Code::kInvalidArgument, concat("invalid priority ", static_cast<int>(hint.priority), ": choose one from ",
                                           kMinPriority, " to ", kMaxPriority)};
  }
  SlotHints hints = parts_.catalog.directory().hints(*slot);
  if ((hint.fields & kHintSet) != 0) {
    std::uint32_t field = 0;
    if (hint.locality_set != 0) {
      ASSIGN_OR_RETURN(const std::uint32_t set,
                       sets_.index_of(hint.locality_set, parts_.catalog.directory().at(*slot).session));
      field = sets_.field_of(set);
    }
    objects_.set_locality_set(*slot, field);
  }
  if ((hint.fields & kHintPriority) != 0) hints.priority = hint.priority;
  if ((hint.fields & kHintPinned) != 0) hints.pinned = hint.pinned;
  if ((hint.fields & kHintRecompute) != 0) hints.recompute = RecomputeCode::of_ns(hint.recompute_ns);
  objects_.set_hints(*slot, hints);
  pager_.hints_changed(*slot);
  return Status::ok();
}

std::vector<Result<std::uint32_t>> Store::consumed(std::span<const IdBytes> ids, std::string_view consumer) {
  std::vector<Result<std::uint32_t>> results;
  results.reserve(ids.size());
  for (const IdBytes& id : ids)
    results.push_back(room_.with_room([&] { return consume(id, consumer); }));
  return results;
}

Result<std::uint32_t> Store::consume(const IdBytes& id, std::string_view consumer) {
  if (consumer.empty()) {
    return Status(Code::kInvalidArgument,
                  "a consumer needs a unique key that stays the same when it reruns, such as the task's name");
  }
  const auto slot = objects_.find(id);
  if (!slot) return 0U;  // its last consumer was rerun
  const SlotHints hints = parts_.catalog.directory().hints(*slot);
  if (hints.consumers == 0) {
    return Status(Code::kInvalidArgument, concat("no number of consumers was set for object ", to_hex(id),
                                                 ": put it with one, or into a set that defines one"));
  }
  ASSIGN_OR_RETURN(const std::uint32_t consumed_count,
                   consumers_.record(*slot, parts_.catalog.directory().generation(*slot), consumer));
  if (consumed_count < hints.consumers) return hints.consumers - consumed_count;
  on_fully_consumed(*slot);
  return 0U;
}

void Store::on_fully_consumed(std::uint32_t slot) {
  const Slot& entry = parts_.catalog.directory().at(slot);
  if (sessions_.deletes_consumed(entry.session)) {
    const IdBytes id = entry.id;
    static_cast<void>(objects_.remove(std::span(&id, 1)));
    return;
  }
  SlotHints hints = parts_.catalog.directory().hints(slot);
  if (hints.dead) return;
  hints.dead = true;
  objects_.set_hints(slot, hints);
  pager_.hints_changed(slot);
}

// Completes what a daemon left undone that died after counting the last consumer.
void Store::delete_fully_consumed() {
  for (const std::uint32_t slot : consumers_.slots()) {
    const SlotHints hints = parts_.catalog.directory().hints(slot);
    if (hints.consumers != 0 && consumers_.count(slot) >= hints.consumers) on_fully_consumed(slot);
  }
}

Status Store::set_deletes_consumed(std::uint32_t handle, bool on) {
  ASSIGN_OR_RETURN(const std::uint32_t session, sessions_.index_of(handle));
  sessions_.set_deletes_consumed(session, on);
  return Status::ok();
}

}  // namespace entrepot
