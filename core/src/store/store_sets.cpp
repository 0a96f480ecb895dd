// Requests about locality sets, hints and consumers.
#include <algorithm>

#include "store/status/json_writer.h"
#include "store/store.h"

namespace entrepot {
namespace {

Status not_found_error(const IdBytes& id) {
  return {Code::kObjectNotFound, concat("object ", to_hex(id), " is not in the store")};
}

const char* name_of(Durability value) { return value == Durability::kWriteThrough ? "write_through" : "write_back"; }

const char* name_of(ReadPattern value) {
  switch (value) {
    case ReadPattern::kOnce:
      return "once";
    case ReadPattern::kSequential:
      return "sequential";
    case ReadPattern::kLoopSequential:
      return "loop_sequential";
    case ReadPattern::kRandom:
      return "random";
    case ReadPattern::kUnknown:
      break;
  }
  return "unknown";
}

const char* name_of(WritePattern value) {
  switch (value) {
    case WritePattern::kAppend:
      return "append";
    case WritePattern::kRandom:
      return "random";
    case WritePattern::kOnce:
      break;
  }
  return "once";
}

const char* name_of(Lifetime value) {
  switch (value) {
    case Lifetime::kConsumers:
      return "consumers";
    case Lifetime::kForever:
      return "forever";
    case Lifetime::kJob:
      break;
  }
  return "job";
}

const char* name_of(Operation value) {
  switch (value) {
    case Operation::kReading:
      return "reading";
    case Operation::kWriting:
      return "writing";
    case Operation::kNone:
      break;
  }
  return "none";
}

const char* name_of(Replacement value) {
  switch (value) {
    case Replacement::kLru:
      return "lru";
    case Replacement::kMru:
      return "mru";
    case Replacement::kDataAware:
      break;
  }
  return "data_aware";
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
  ASSIGN_OR_RETURN(const std::uint32_t index, with_room([&] { return sets_.define(session_index, text, change); }));
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
    results.push_back(with_room([&] { return consume(id, consumer); }));
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

// ---- reports ----

void Store::write_set(JsonWriter& json, std::uint32_t slot) const {
  const Slot& entry = parts_.catalog.directory().at(slot);
  const SlotHints hints = parts_.catalog.directory().hints(slot);
  const std::uint32_t* set = sets_.find_field(entry.session, entry.locality_set);
  const std::uint32_t consumed_count = consumers_.count(slot);
  json.field("locality_set", set == nullptr ? std::string_view() : sets_.name(*set))
      .field("priority", hints.priority)
      .field("user_pinned", hints.pinned)
      .field("consumers", hints.consumers)
      .field("consumers_left", hints.consumers > consumed_count ? hints.consumers - consumed_count : 0)
      .field("dead", hints.dead)
      .field("made_again", hints.recomputed)
      .key("recompute_seconds");
  if (hints.recompute != 0) {
    json.value(RecomputeCode::seconds(hints.recompute));
  } else {
    json.null();
  }
}

Result<std::string> Store::sets_json(std::uint32_t session) const {
  ASSIGN_OR_RETURN(const std::uint32_t session_index, sessions_.index_of(session));
  struct Use {
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::uint32_t, Use> use;  // by policy number
  for (const std::uint32_t slot : sessions_.slots_of(session_index)) {
    const Slot& entry = parts_.catalog.directory().at(slot);
    Use& set_use = use[sets_.policy_number(session_index, entry.locality_set)];
    ++set_use.objects;
    set_use.bytes += entry.payload_bytes;
  }
  JsonWriter json;
  json.open_object().key("sets").open_array();
  const auto write = [&](std::uint32_t handle, std::string_view name, const SetAttributes& attributes,
                         std::uint32_t number) {
    json.open_object()
        .field("name", name)
        .field("handle", handle)
        .field("durability", name_of(attributes.durability))
        .field("reading", name_of(attributes.reading))
        .field("reading_now", name_of(pager_.policy().reading(number)))
        .field("writing", name_of(attributes.writing))
        .field("lifetime", name_of(attributes.lifetime))
        .field("consumers", attributes.consumers)
        .field("operation", name_of(attributes.operation))
        .field("policy", name_of(attributes.replacement))
        .field("priority", attributes.priority)
        .field("objects", use[number].objects)
        .field("nbytes", use[number].bytes)
        .close_object();
  };
  if (sets_.find(session_index, "") == nullptr) write(0, "", {}, sets_.policy_number(session_index, 0));
  for (const std::uint32_t index : sets_.of_session(session_index)) {
    write(sets_.handle(index), sets_.name(index), sets_.attributes(index),
          sets_.policy_number(session_index, sets_.field_of(index)));
  }
  json.close_array().close_object();
  return json.take();
}

}  // namespace entrepot
