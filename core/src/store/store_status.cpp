// Status, info and lists as JSON, and the details of a StoreFull error.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "store/status/glob.h"
#include "store/status/json_writer.h"
#include "store/store.h"

namespace entrepot {
namespace {

const char* state_name(ObjectState state) {
  switch (state) {
    case ObjectState::kFree:
      return "free";
    case ObjectState::kUnsealed:
      return "unsealed";
    case ObjectState::kSealed:
      return "sealed";
    case ObjectState::kEvicting:
      return "evicting";
    case ObjectState::kSpilled:
      return "spilled";
    case ObjectState::kLoading:
      return "loading";
    case ObjectState::kRemote:
      return "remote";
    case ObjectState::kLost:
      return "lost";
    case ObjectState::kStream:
      return "stream";
    case ObjectState::kDeleting:
      return "deleting";
    case ObjectState::kDropped:
      return "dropped";
  }
  return "unknown";
}

struct PinUse {
  std::set<PinTarget> objects;
  std::map<std::uint32_t, std::set<PinTarget>> by_client;
};

PinUse pin_use(const PinScanner& pins) {
  PinUse use;
  pins.for_each([&](std::uint32_t client, const PinTarget& target) {
    use.objects.insert(target);
    use.by_client[client].insert(target);
  });
  return use;
}

std::uint64_t bytes_of(const std::set<PinTarget>& targets, const DirectoryWriter& directory) {
  std::uint64_t bytes = 0;
  for (const PinTarget& target : targets) {
    if (directory.is_live(target.slot, target.generation)) bytes += directory.at(target.slot).payload_bytes;
  }
  return bytes;
}

void write_names(JsonWriter& json, const std::vector<std::string>& names) {
  json.key("names").open_array();
  for (const std::string& name : names)
    json.value(name);
  json.close_array();
}

}  // namespace

std::string Store::describe_holders(const Remedies& remedies) const {
  const PinUse use = pin_use(pins_);
  const std::uint64_t now = clock_->unix_ns();
  std::string text =
      concat(pool_.describe_pressure(), ", in all ", budget_.describe(), ", pinned ",
             format_bytes(bytes_of(use.objects, parts_.catalog.directory())), ", deleted but still pinned ",
             format_bytes(parts_.deferred.payload_bytes()), ", spillable ", format_bytes(pager_.spillable_bytes()));
  if (pager_.enabled()) {
    const SpillStats spill = pager_.spill_stats();
    text += concat(", spilled ", format_bytes(spill.used_bytes), " of ", format_bytes(spill.quota_bytes));
    if (!spill.note.empty()) text += concat(" (", spill.note, ")");
  }
  for (const auto& [client, pinned] : use.by_client) {
    const ClientState* state = clients_.find(client);
    text += concat("; ", clients_.describe(client), " pins ", pinned.size(), " objects of ",
                   format_bytes(bytes_of(pinned, parts_.catalog.directory())));
    if (state != nullptr && now > state->connected_unix_ns) {
      text += concat(", connected for ", (now - state->connected_unix_ns) / 1'000'000'000, " s");
    }
  }
  for (const auto& [client, leased] : pool_.leased_by_client()) {
    if (leased != 0) text += concat("; ", clients_.describe(client), " holds leases of ", format_bytes(leased));
  }
  text += ". Tried: free segments, empty segments, free ranges of others, holes among the records";
  if (remedies.evicting) text += ", moving objects to disk";
  if (remedies.waiting) text += ", waiting";
  text += ". Delete objects or sessions, release values that readers hold, or start the daemon with a larger --size";
  if (!pager_.enabled()) text += concat(" or with --spill-path (spilling is off: ", options_.no_spill_reason, ")");
  return text;
}

std::string Store::status_json(const DaemonStatus& daemon_status) const {
  const PinUse use = pin_use(pins_);
  const Root& root = memory_->root();
  const std::uint64_t warm = pool_.warm_bytes();
  JsonWriter json;
  json.open_object()
      .field("version", options_.version)
      .field("instance", to_hex(memory_->instance()))
      .field("host", options_.host)
      .field("pid", daemon_status.pid)
      .field("keeper_pid", daemon_status.keeper_pid)
      .field("program", daemon_status.program)
      .field("log_lines_dropped", daemon_status.log_lines_dropped)
      .field("keeper_log_lines_dropped", daemon_status.keeper_log_lines_dropped)
      .key("uptime_seconds")
      .value_seconds(clock_->monotonic_ns() - started_ns_)
      .field("created_unix_ns", root.created_unix_ns)
      .field("incarnation", root.incarnation.load(std::memory_order_relaxed))
      .field("capacity_bytes", options_.capacity_bytes)
      .field("used_bytes", pool_.blob_bytes() + records_.used_bytes())
      .field("payload_bytes", parts_.catalog.payload_bytes())
      .field("pinned_bytes", bytes_of(use.objects, parts_.catalog.directory()))
      .field("leased_bytes", pool_.leased_bytes())
      .field("unsealed_bytes", pool_.leased_bytes())
      .field("spilled_bytes", parts_.blobs.spilled_bytes())
      .field("clean_bytes", parts_.blobs.clean_bytes())
      .field("record_bytes", records_.used_bytes())
      .field("committed_bytes", pool_.committed_bytes() + pool_.record_bytes())
      .field("available_bytes", pool_.available_bytes())
      .field("warm_bytes", warm)
      .field("provisioned", pool_.warm_done())
      .field("provision_target_bytes", pool_.warm_target_bytes())
      .field("provisioning_bytes", pool_.provisioning_bytes())
      .field("provision_note", pool_.warm_note())
      .field("memory_kind", pool_.memory_kind())
      .field("objects", parts_.catalog.count())
      .field("blobs", parts_.blobs.live())
      .field("names", names_.count())
      .field("sessions", sessions_.count())
      .field("deferred_frees", parts_.deferred.count())
      .field("deferred_bytes", parts_.deferred.payload_bytes())
      .field("dropped", parts_.absent.dropped())
      .field("drops", pager_.stats().dropped)
      .field("drops_bytes", pager_.stats().dropped_bytes)
      .field("largest_free_extent", pool_.largest_extent())
      .field("largest_lease_bytes", pool_.largest_lease())
      .field("waiting", pending_.lookups.size() + pending_.names.size() + pending_.leases.size());
  write_budget(json);
  json.key("clients").open_array();
  const std::uint64_t now = clock_->unix_ns();
  for (const auto& [client, state] : clients_.all()) {
    json.open_object()
        .field("client", client)
        .field("pid", state.identity.pid)
        .field("uid", state.identity.uid)
        .field("label", state.identity.label)
        .field("connected", state.connected)
        .field("quarantined", state.quarantined)
        .field("pins", pins_.count(client))
        .field("pin_places", pins_.reserved_pins(client))
        .field("leased_bytes", pool_.leased_by(client))
        .key("connected_seconds")
        .value_seconds(now > state.connected_unix_ns ? now - state.connected_unix_ns : 0)
        .close_object();
  }
  json.close_array().key("spill").open_object().field("enabled", pager_.enabled());
  if (pager_.enabled()) {
    const SpillStats spill = pager_.spill_stats();
    const Pager::Stats paged = pager_.stats();
    json.field("disk_bytes", spill.used_bytes)
        .field("quota_bytes", spill.quota_bytes)
        .field("written_bytes", spill.written_bytes)
        .field("stored_bytes", spill.stored_bytes)
        .field("compression", spill.packing)
        .field("encrypted", !spill.key_id.empty())
        .field("key_id", spill.key_id)
        .field("read_bytes", spill.read_bytes)
        .field("pending_writes", spill.pending_writes)
        .field("pending_reads", spill.pending_reads)
        .field("unrecorded", spill.unrecorded)
        .field("evictions", paged.evictions)
        .field("evicted_bytes", paged.evicted_bytes)
        .field("loads", paged.loads)
        .field("loads_ahead", paged.prefetches)
        .field("loaded_bytes", paged.loaded_bytes)
        .field("failed_writes", paged.failed_writes)
        .field("failed_reads", paged.failed_reads)
        .field("note", spill.note);
    json.key("folders").open_array();
    for (const std::string& folder : spill.folders)
      json.value(folder);
    json.close_array();
  } else {
    json.field("note", options_.no_spill_reason);
  }
  json.close_object().key("segments").open_object();
  for (const auto& [name, line] : pool_.summary()) {
    json.key(name).open_object().field("count", line.count).field("bytes", line.bytes).close_object();
  }
  json.close_object()
      .field("follows_killed_store", recovered_from_crash())
      .key("lost_on_adoption")
      .open_object()
      .field("objects", adoption_.objects.lost)
      .field("segments", adoption_.lost_segments)
      .field("entries", adoption_.damaged_entries)
      .close_object()
      .close_object();
  return json.take();
}

void Store::object_json(JsonWriter& json, std::uint32_t slot) const {
  const DirectoryWriter& directory = parts_.catalog.directory();
  const Slot& entry = directory.at(slot);
  const bool known = sessions_.is_live(entry.session);
  std::uint64_t blob_count = 0;
  const Result<RecordView> record = parts_.catalog.record(slot);
  if (record.is_ok()) blob_count = record->blobs().size();
  json.field("id", to_hex(entry.id))
      .field("generation", directory.generation(slot))
      .field("state", state_name(directory.state(slot)))
      .field("scope", known ? sessions_.scope(entry.session) : std::string_view())
      .field("session", known ? sessions_.name(entry.session) : std::string_view());
  write_names(json, names_.names_of(entry.id));
  json.field("nbytes", entry.payload_bytes)
      .field("record_bytes", entry.record_bytes)
      .field("blob_count", blob_count)
      .field("slot", slot)
      .field("sealed_unix_ns", entry.sealed_unix_ns)
      .field("creator", entry.creator);
  write_set(json, slot);
}

// Explains why the object is where it is.
void Store::write_explanation(JsonWriter& json, std::uint32_t slot) const {
  std::string why;
  if (parts_.catalog.blobs_of(slot).empty()) {
    why = "its payload is part of its record, which always stays in memory";
  } else if (!parts_.catalog.is_resident(slot)) {
    why = "memory was needed for other objects, so it was spilled; a get reloads it";
    if (pager_.is_loading(slot)) why = "it is being reloaded from disk";
  } else if (!pager_.enabled()) {
    why = parts_.catalog.directory().hints(slot).drop_recompute_code() == 0
              ? "this store has no spill folder, so objects are not evicted"
              : "this store has no spill folder, so objects that can be recomputed, such as this one, are dropped when "
                "memory is short";
  } else {
    const Explanation explained = pager_.policy().explain(slot, clock_->monotonic_ns());
    why = explained.text;
    json.key("eviction")
        .open_object()
        .field("rank", explained.rank)
        .field("rank_is_least", explained.rank_is_lower_bound)
        .field("bytes_before", explained.bytes_before)
        .field("clean", explained.clean)
        .field("dead", explained.dead)
        .field("was_read", explained.was_read)
        .field("idle_seconds", explained.idle_seconds)
        .field("reads_a_second", explained.reads_a_second)
        .field("cost", explained.cost)
        .field("write_cost", explained.write_cost)
        .field("read_cost", explained.read_cost)
        .field("recompute_cost", explained.recompute_cost)
        .field("drops", explained.would_drop)
        .close_object();
  }
  json.field("why", why);
}

Result<std::string> Store::info_json(const IdBytes& id) const {
  const auto slot = objects_.find(id);
  if (!slot) {
    const LookupOutcome outcome = objects_.lookup(id);
    std::string text = concat("object ", to_hex(id), " is not in the store");
    if (outcome.code == Code::kObjectLost) text = concat("object ", to_hex(id), " was lost: ", outcome.message);
    if (outcome.code == Code::kObjectDropped) text = concat("object ", to_hex(id), " was dropped: ", outcome.message);
    return Status(outcome.code, std::move(text));
  }
  const DirectoryWriter& directory = parts_.catalog.directory();
  ASSIGN_OR_RETURN(const RecordView record, parts_.catalog.record(*slot));
  const PinTarget target{*slot, directory.generation(*slot)};
  const std::vector<PinCount> pinned_by = pins_.pinned_by(target);
  JsonWriter json;
  json.open_object();
  object_json(json, *slot);
  json.field("inline_bytes", record.payload().size());
  write_explanation(json, *slot);
  json.key("blobs").open_array();
  for (const BlobRef& ref : record.blobs()) {
    const BlobLocation place = parts_.blobs.place(ref.blob);
    json.open_object()
        .field("blob", ref.blob)
        .field("generation", ref.generation)
        .field("resident", parts_.blobs.is_resident(ref.blob))
        .field("has_copy", parts_.blobs.copy(ref.blob) != 0)
        .field("segment", place.segment)
        .field("offset", place.offset)
        .field("length", place.length)
        .field("refs", parts_.blobs.references(ref.blob))
        .close_object();
  }
  json.close_array();
  std::uint64_t pins = 0;
  json.key("pinned_by").open_array();
  for (const PinCount& count : pinned_by) {
    const ClientState* state = clients_.find(count.client);
    pins += count.pins;
    json.open_object()
        .field("client", count.client)
        .field("pid", state == nullptr ? 0 : state->identity.pid)
        .field("label", state == nullptr ? std::string() : state->identity.label)
        .field("pins", count.pins)
        .close_object();
  }
  json.close_array().field("pins", pins).close_object();
  return json.take();
}

Result<std::string> Store::list_json(const ListQuery& query) const {
  std::uint32_t session = 0;
  if (!query.all_sessions) {
    ASSIGN_OR_RETURN(session, sessions_.index_of(query.session));
  }
  const DirectoryWriter& directory = parts_.catalog.directory();
  const std::uint32_t limit = std::clamp<std::uint32_t>(query.limit, 1, 100'000);
  std::uint32_t found = 0;
  std::uint32_t slot = query.cursor;
  JsonWriter json;
  json.open_object().key("objects").open_array();
  for (; slot < directory.size() && found < limit; ++slot) {
    if (!directory.is_findable(slot)) continue;
    const Slot& entry = directory.at(slot);
    if (!query.all_sessions && entry.session != session) continue;
    if (!query.pattern.empty() && query.pattern != "*") {
      const std::vector<std::string> names = names_.names_of(entry.id);
      const bool matched = glob_match(query.pattern, to_hex(entry.id)) ||
                           std::any_of(names.begin(), names.end(),
                                       [&](const std::string& name) { return glob_match(query.pattern, name); });
      if (!matched) continue;
    }
    ++found;
    json.open_object();
    object_json(json, slot);
    json.close_object();
  }
  json.close_array().key("next_cursor");
  if (slot < directory.size()) {
    json.value(slot);
  } else {
    json.null();
  }
  json.close_object();
  return json.take();
}

std::string Store::sessions_json() const {
  const std::uint64_t now = clock_->unix_ns();
  JsonWriter json;
  json.open_object().key("sessions").open_array();
  for (const std::uint32_t index : sessions_.live()) {
    const Session& session = sessions_.at(index);
    const SessionUsage& use = sessions_.use(index);
    const std::uint64_t used = session.last_used_unix_ns.load(std::memory_order_relaxed);
    json.open_object()
        .field("scope", sessions_.scope(index))
        .field("session", sessions_.name(index))
        .field("handle", sessions_.handle(index))
        .field("created_unix_ns", session.created_unix_ns)
        .field("last_used_unix_ns", used)
        .key("idle_seconds")
        .value_seconds(now > used ? now - used : 0)
        .field("ttl_seconds", session.ttl_seconds)
        .field("limit_bytes", session.limit_bytes)
        .field("limit_objects", session.limit_objects)
        .field("objects", use.objects)
        .field("nbytes", use.bytes)
        .field("opened_by", use.opened_by)
        .field("deletes_consumed", sessions_.deletes_consumed(index))
        .close_object();
  }
  json.close_array().close_object();
  return json.take();
}

}  // namespace entrepot
