// Requests about sessions and names, and when those that move or remove a name are answered.
#include <algorithm>
#include <utility>

#include "store/store.h"

namespace entrepot {

Result<std::uint32_t> Store::open_session(std::uint32_t client, std::string_view scope, std::string_view name,
                                          const SessionLimits* limits) {
  ASSIGN_OR_RETURN(const std::uint32_t index,
                   room_.with_room([&] { return sessions_.open(scope, name, limits, options_.default_ttl_seconds); }));
  ASSIGN_OR_RETURN(const bool was_closed, room_.with_room([&] {
    return openings_.add(client, clients_.generation(client), index, sessions_.generation(index));
  }));
  if (was_closed) sessions_.add_opener(index);
  sessions_changed();
  return sessions_.handle(index);
}

Status Store::close_session(std::uint32_t client, std::uint32_t handle) {
  ASSIGN_OR_RETURN(const std::uint32_t index, sessions_.index_of(handle));
  if (!openings_.remove(client, index)) {
    return {Code::kInvalidArgument, concat(sessions_.describe(index), " is not open for client ", client)};
  }
  sessions_.remove_opener(index);
  sessions_changed();
  return Status::ok();
}

Status Store::remove_session(std::string_view scope, std::string_view name) {
  const std::uint32_t* index = sessions_.find(scope, name);
  if (index == nullptr) {
    return Status(Code::kObjectNotFound, concat("there is no session '", name, "' in scope '", scope, "'"));
  }
  const std::uint32_t session = *index;
  sessions_.mark_dead(session);
  end_session(session);
  return Status::ok();
}

Result<Store::RemoveUnusedResult> Store::remove_unused_session(std::string_view scope, std::string_view name,
                                                               std::uint64_t last_used_unix_ns) {
  const std::uint32_t* index = sessions_.find(scope, name);
  if (index == nullptr) {
    return Status(Code::kObjectNotFound, concat("there is no session '", name, "' in scope '", scope, "'"));
  }
  const std::uint32_t opened_by = sessions_.use(*index).opened_by;
  const std::uint64_t used = sessions_.at(*index).last_used_unix_ns.load(std::memory_order_relaxed);
  if (opened_by != 0 || (last_used_unix_ns != 0 && used > last_used_unix_ns))
    return RemoveUnusedResult{false, opened_by};
  RETURN_IF_ERROR(remove_session(scope, name));
  return RemoveUnusedResult{true, 0};
}

void Store::end_session(std::uint32_t index) {
  streams_.session_ended(index);
  objects_.remove_session(index);
  drop_sets(index);
  openings_.remove_session(index);
  const std::vector<PendingNameResolution> orphans = pending_.of_session(index);
  sessions_.free(index);
  for (const PendingNameResolution& request : orphans) {
    request.done(Status(Code::kObjectNotFound, concat("the session of name '", request.name, "' was removed")));
  }
}

Result<NameOutcome> Store::bind_name(std::uint32_t session, std::string_view name, const IdBytes& id, bool replace) {
  return room_.with_room([&] { return bind_name_now(session, name, id, replace); });
}

Result<NameOutcome> Store::bind_name_now(std::uint32_t session, std::string_view name, const IdBytes& id,
                                         bool replace) {
  ASSIGN_OR_RETURN(const std::uint32_t index, sessions_.index_of(session));
  const LookupOutcome object = objects_.lookup(id);
  if (object.code != Code::kOk) {
    return Status(object.code, concat("object ", to_hex(id), " is not in the store: put it before naming it"));
  }
  RETURN_IF_ERROR(objects_.bind_name(index, name, id, object.generation, replace));
  sessions_.touch(index);
  notify_named(index, name);
  return NameOutcome{id, object.generation};
}

void Store::resolve_name(const RequestOrigin& origin, std::uint32_t session, std::string_view name,
                         std::uint64_t timeout_ms, NameDone done) {
  const Result<std::uint32_t> index = sessions_.index_of(session);
  if (!index.is_ok()) return done(index.status());
  const Status checked = NameTable::check(name);
  if (!checked.is_ok()) return done(checked);
  sessions_.touch(*index);
  if (const IdBytes* id = names_.resolve(*index, name)) {
    return done(NameOutcome{*id, objects_.lookup(*id).generation});
  }
  if (timeout_ms == 0) {
    const std::string lost = describe_lost();
    return done(Status(Code::kObjectNotFound, concat("no object has the name '", name, "' in ",
                                                     sessions_.describe(*index), lost.empty() ? "" : ", ", lost)));
  }
  pending_.add(PendingNameResolution{origin, deadline(timeout_ms), *index, std::string(name), std::move(done)});
}

void Store::notify_named(std::uint32_t session, std::string_view name) {
  const IdBytes* id = names_.resolve(session, name);
  if (id == nullptr || !pending_.resolves_names()) return;
  const NameOutcome outcome{*id, objects_.lookup(*id).generation};
  for (const PendingNameResolution& request : pending_.named(session, name))
    request.done(outcome);
}

Status Store::unbind_name(std::uint32_t session, std::string_view name) {
  ASSIGN_OR_RETURN(const std::uint32_t index, sessions_.index_of(session));
  if (objects_.unbind_name(index, name)) return Status::ok();
  return Status(Code::kObjectNotFound, concat("no object has the name '", name, "' in ", sessions_.describe(index)));
}

// ---- the manifest on disk ----

std::uint64_t Store::unrecorded(std::uint32_t session, std::string_view name) const {
  const Result<std::uint32_t> index = sessions_.index_of(session);
  return index.is_ok() ? parts_.manifest.unwritten_name(*index, name) : 0;
}

std::uint64_t Store::unrecorded(std::span<const IdBytes> ids) const {
  std::uint64_t record = 0;
  for (const IdBytes& id : ids)
    record = std::max(record, parts_.manifest.unwritten(id));
  return record;
}

void Store::when_recorded(const RequestOrigin& origin, std::uint64_t record, std::uint64_t timeout_ms,
                          RecordDone done) {
  if (is_recorded(record)) return done(Status::ok());
  pending_.add(PendingRecord{origin, deadline(timeout_ms), timeout_ms, record, std::move(done)});
}

void Store::answer_recorded() {
  parts_.manifest.drop_written();
  if (!pending_.waits_for_records()) return;
  for (const PendingRecord& request : pending_.recorded(parts_.manifest.written()))
    request.done(Status::ok());
}

Status Store::unrecorded_error(std::string_view why) const {
  return Status(Code::kTimeout,
                concat("this was done, but the list of spilled objects on disk does not say so yet, because ", why,
                       ": should keeper and daemon both be killed before it does, then the name or the ID may lead to "
                       "its former object in the next store; see 'entrepot status', and repeat the call to wait again"),
                true);
}

}  // namespace entrepot
