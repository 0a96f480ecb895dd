#include "store/store_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "store/status/json_writer.h"

namespace entrepot {
namespace {

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

std::string StoreReport::describe_holders(const Remedies& remedies) const {
  const PinUse use = pin_use(from_.pins);
  const std::uint64_t now = from_.clock.unix_ns();
  std::string text = concat(from_.pool.describe_pressure(), ", in all ", from_.budget.describe(), ", pinned ",
                            format_bytes(bytes_of(use.objects, from_.parts.catalog.directory())),
                            ", deleted but still pinned ", format_bytes(from_.parts.deferred.payload_bytes()),
                            ", spillable ", format_bytes(from_.pager.spillable_bytes()));
  if (from_.pager.enabled()) {
    const SpillStats spill = from_.pager.spill_stats();
    text += concat(", spilled ", format_bytes(spill.used_bytes), " of ", format_bytes(spill.quota_bytes));
    if (!spill.note.empty()) text += concat(" (", spill.note, ")");
    if (remedies.short_of_quota) {
      text += concat(" (of the spill quota, ",
                     format_bytes(spill.quota_bytes - std::min(spill.quota_bytes, spill.used_bytes)),
                     " are left: too little to write more objects, or kept for reading back those on disk)");
    }
  }
  for (const auto& [client, pinned] : use.by_client) {
    const ClientState* state = from_.clients.find(client);
    text += concat("; ", from_.clients.describe(client), " pins ", pinned.size(), " objects of ",
                   format_bytes(bytes_of(pinned, from_.parts.catalog.directory())));
    if (state != nullptr && now > state->connected_unix_ns) {
      text += concat(", connected for ", (now - state->connected_unix_ns) / 1'000'000'000, " s");
    }
  }
  for (const auto& [client, leased] : from_.pool.leased_by_client()) {
    if (leased != 0) text += concat("; ", from_.clients.describe(client), " holds leases of ", format_bytes(leased));
  }
  text += ". Tried: free segments, empty segments, free ranges of others, holes among the records";
  if (remedies.evicting) text += ", moving objects to disk";
  if (remedies.waiting) text += ", waiting";
  text += ". Delete objects or sessions, release values that readers hold, or start the daemon with a larger --size";
  if (remedies.short_of_quota) text += " or --spill-quota";
  if (!from_.pager.enabled())
    text += concat(" or with --spill-path (spilling is off: ", from_.options.no_spill_reason, ")");
  return text;
}

std::string StoreReport::status_json(const DaemonStatus& daemon_status) const {
  const PinUse use = pin_use(from_.pins);
  const Root& root = from_.memory.root();
  const std::uint64_t warm = from_.pool.warm_bytes();
  JsonWriter json;
  json.open_object()
      .field("version", from_.options.version)
      .field("instance", to_hex(from_.memory.instance()))
      .field("host", from_.options.host)
      .field("pid", daemon_status.pid)
      .field("keeper_pid", daemon_status.keeper_pid)
      .field("program", daemon_status.program)
      .field("log_lines_dropped", daemon_status.log_lines_dropped)
      .field("keeper_log_lines_dropped", daemon_status.keeper_log_lines_dropped)
      .key("uptime_seconds")
      .value_seconds(from_.clock.monotonic_ns() - started_ns_)
      .field("created_unix_ns", root.created_unix_ns)
      .field("incarnation", root.incarnation.load(std::memory_order_relaxed))
      .field("capacity_bytes", from_.options.capacity_bytes)
      .field("used_bytes", from_.pool.blob_bytes() + from_.records.used_bytes())
      .field("payload_bytes", from_.parts.catalog.payload_bytes())
      .field("pinned_bytes", bytes_of(use.objects, from_.parts.catalog.directory()))
      .field("leased_bytes", from_.pool.leased_bytes())
      .field("unsealed_bytes", from_.pool.leased_bytes())
      .field("spilled_bytes", from_.parts.blobs.spilled_bytes())
      .field("clean_bytes", from_.parts.blobs.clean_bytes())
      .field("record_bytes", from_.records.used_bytes())
      .field("committed_bytes", from_.pool.committed_bytes() + from_.pool.record_bytes())
      .field("available_bytes", from_.pool.available_bytes())
      .field("warm_bytes", warm)
      .field("provisioned", from_.pool.warm_done())
      .field("provision_target_bytes", from_.pool.warm_target_bytes())
      .field("kept_target_bytes", from_.surplus.kept_bytes())
      .field("kept_for_seconds", from_.options.give_back_after_seconds)
      .field("provisioning_bytes", from_.pool.provisioning_bytes())
      .field("provision_note", from_.pool.warm_note())
      .field("memory_kind", from_.pool.memory_kind())
      .field("objects", from_.parts.catalog.count())
      .field("blobs", from_.parts.blobs.live())
      .field("names", from_.names.count())
      .field("sessions", from_.sessions.count())
      .field("deferred_frees", from_.parts.deferred.count())
      .field("deferred_bytes", from_.parts.deferred.payload_bytes())
      .field("dropped", from_.parts.absent.dropped())
      .field("drops", from_.pager.stats().dropped)
      .field("drops_bytes", from_.pager.stats().dropped_bytes)
      .field("largest_free_extent", from_.pool.largest_extent())
      .field("largest_lease_bytes", from_.pool.largest_lease())
      .field("waiting", from_.pending.answers_due() + from_.streams.waiting() + from_.gateway.waiting());
  write_budget(json);
  write_reservations(json);
  write_streams(json);
  write_gateway(json);
  json.key("clients").open_array();
  const std::uint64_t now = from_.clock.unix_ns();
  for (const auto& [client, state] : from_.clients.all()) {
    json.open_object()
        .field("client", client)
        .field("pid", state.identity.pid)
        .field("uid", state.identity.uid)
        .field("label", state.identity.label)
        .field("connected", state.connected)
        .field("quarantined", state.quarantined)
        .field("pins", from_.pins.count(client))
        .field("pin_places", from_.pins.reserved_pins(client))
        .field("leased_bytes", from_.pool.leased_by(client))
        .key("connected_seconds")
        .value_seconds(now > state.connected_unix_ns ? now - state.connected_unix_ns : 0)
        .close_object();
  }
  json.close_array().key("spill").open_object().field("enabled", from_.pager.enabled());
  if (from_.pager.enabled()) {
    const SpillStats spill = from_.pager.spill_stats();
    const Pager::Stats paged = from_.pager.stats();
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
    json.field("note", from_.options.no_spill_reason);
  }
  json.close_object().key("segments").open_object();
  for (const auto& [name, line] : from_.pool.summary()) {
    json.key(name).open_object().field("count", line.count).field("bytes", line.bytes).close_object();
  }
  json.close_object()
      .field("follows_killed_store", recovered_from_crash())
      .key("lost_on_adoption")
      .open_object()
      .field("objects", from_.adoption.objects.lost)
      .field("segments", from_.adoption.lost_segments)
      .field("entries", from_.adoption.damaged_entries)
      .close_object()
      .close_object();
  return json.take();
}

std::string StoreReport::sessions_json() const {
  const std::uint64_t now = from_.clock.unix_ns();
  JsonWriter json;
  json.open_object().key("sessions").open_array();
  for (const std::uint32_t index : from_.sessions.live()) {
    const Session& session = from_.sessions.at(index);
    const SessionUsage& use = from_.sessions.use(index);
    const std::uint64_t used = session.last_used_unix_ns.load(std::memory_order_relaxed);
    json.open_object()
        .field("scope", from_.sessions.scope(index))
        .field("session", from_.sessions.name(index))
        .field("handle", from_.sessions.handle(index))
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
        .field("deletes_consumed", from_.sessions.deletes_consumed(index))
        .close_object();
  }
  json.close_array().close_object();
  return json.take();
}

Result<std::string> StoreReport::sets_json(std::uint32_t session) const {
  ASSIGN_OR_RETURN(const std::uint32_t session_index, from_.sessions.index_of(session));
  struct Use {
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::uint32_t, Use> use;  // by policy number
  for (const std::uint32_t slot : from_.sessions.slots_of(session_index)) {
    const Slot& entry = from_.parts.catalog.directory().at(slot);
    Use& set_use = use[from_.sets.policy_number(session_index, entry.locality_set)];
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
        .field("reading_now", name_of(from_.pager.policy().reading(number)))
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
  if (from_.sets.find(session_index, "") == nullptr) write(0, "", {}, from_.sets.policy_number(session_index, 0));
  for (const std::uint32_t index : from_.sets.of_session(session_index)) {
    write(from_.sets.handle(index), from_.sets.name(index), from_.sets.attributes(index),
          from_.sets.policy_number(session_index, from_.sets.field_of(index)));
  }
  json.close_array().close_object();
  return json.take();
}

void StoreReport::write_budget(JsonWriter& json) const {
  json.key("budget")
      .open_object()
      .field("limit_bytes", from_.budget.limit_bytes())
      .field("margin_bytes", MemoryBudget::kMarginBytes)
      .field("granted_bytes", from_.budget.granted())
      .field("free_bytes", from_.budget.free_bytes())
      .key("items")
      .open_object();
  for (std::size_t i = 0; i < kBudgetItems; ++i) {
    const auto item = static_cast<BudgetItem>(i);
    json.field(budget_item_name(item), from_.budget.granted(item));
  }
  json.close_object().close_object();
}

std::string StoreReport::describe_reservations() const {
  constexpr std::size_t kMaxHolders = 16;
  const Reservations& reservations = from_.reservations;
  const std::uint64_t now = from_.clock.monotonic_ns();
  std::string text = concat(format_bytes(reservations.bytes()), " is reserved");
  std::size_t holders = 0;
  for (const auto& [client, all] : reservations.granted()) {
    for (const Reservation& held : all) {
      if (++holders > kMaxHolders) continue;
      text +=
          concat(holders == 1 ? ": " : "; ", from_.clients.describe(client), " has reserved ", format_bytes(held.bytes),
                 " for ", (now - held.since_ns) / 1'000'000'000, " s, and stored ", format_bytes(held.used));
    }
  }
  if (holders > kMaxHolders) text += concat("; and ", holders - kMaxHolders, " more");
  if (const std::size_t waiting = reservations.waiting().size(); waiting != 0)
    text += concat("; ", count_of(waiting, "more request"), " for reservations waiting");
  return text;
}

void StoreReport::write_reservations(JsonWriter& json) const {
  const std::uint64_t now = from_.clock.monotonic_ns();
  const auto write_client = [&](std::uint32_t client) {
    const ClientState* state = from_.clients.find(client);
    json.field("client", client)
        .field("pid", state == nullptr ? 0U : state->identity.pid)
        .field("label", state == nullptr ? std::string() : state->identity.label);
  };
  json.key("reservations").open_object().field("bytes", from_.reservations.bytes()).key("granted").open_array();
  for (const auto& [client, all] : from_.reservations.granted()) {
    for (const Reservation& held : all) {
      json.open_object();
      write_client(client);
      json.field("bytes", held.bytes)
          .field("used_bytes", held.used)
          .field("covered_bytes", held.covered)
          .key("held_seconds")
          .value_seconds(now - held.since_ns)
          .close_object();
    }
  }
  json.close_array().key("waiting").open_array();
  for (const PendingReservation& request : from_.reservations.waiting()) {
    json.open_object();
    write_client(request.origin.client);
    json.field("bytes", request.bytes).key("waiting_seconds").value_seconds(now - request.since_ns).close_object();
  }
  json.close_array().close_object();
}

void StoreReport::write_streams(JsonWriter& json) const {
  constexpr std::string_view kStates[] = {"open", "ended", "failed"};
  json.key("streams").open_array();
  for (const StreamTable::Listed& listed : from_.streams.list()) {
    const Stream& stream = *listed.stream;
    json.open_object()
        .field("name", listed.name)
        .field("session", from_.sessions.describe(listed.session))
        .field("scope", from_.sessions.scope(listed.session))
        .field("session_name", from_.sessions.name(listed.session))
        .field("state", kStates[static_cast<std::size_t>(stream.state())])
        .field("failure", stream.failure())
        .field("capacity", stream.capacity())
        .field("capacity_bytes", stream.capacity_bytes())
        .field("chunks", stream.size())
        .field("bytes", stream.bytes())
        .field("appended", stream.appended())
        .field("writers", stream.writers())
        .field("writers_open", listed.writers_open)
        .field("writers_closed", stream.writers_closed())
        .field("writers_waiting", listed.writers_waiting)
        .key("groups")
        .open_array();
    for (std::size_t i = 0; i < stream.groups().size(); ++i) {
      const Stream::GroupState& group = stream.groups()[i];
      json.open_object()
          .field("name", group.name)
          .field("readers", i < listed.readers.size() ? listed.readers[i] : 0)
          .field("not_consumed", group.left)
          .field("in_hand", group.in_hand.size())
          .close_object();
    }
    json.close_array().close_object();
  }
  json.close_array();
}

void StoreReport::write_gateway(JsonWriter& json) const {
  json.key("gateway")
      .open_object()
      .field("process", from_.gateway.label())
      .field("serves", from_.gateway.is_expected())
      .field("calls", from_.gateway.waiting())
      .close_object();
}

bool StoreReport::recovered_from_crash() const {
  return (from_.memory.root().flags.load(std::memory_order_relaxed) & kRootRecoveredFromCrash) != 0;
}

}  // namespace entrepot
