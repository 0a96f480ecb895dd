#include "store/object_report.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "store/status/glob.h"
#include "store/status/json_writer.h"

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

// Limit of the references that a report on one object reads to find the owners of its blobs: the daemon serves nobody
// else meanwhile.
constexpr std::uint64_t kMaxReferencesRead = 1'000'000;

// Size of the union of the ranges.
std::uint64_t covered_bytes(std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) {
  std::ranges::sort(ranges);
  std::uint64_t bytes = 0;
  std::uint64_t covered_to = 0;
  for (const auto& [first, end] : ranges) {
    if (end <= covered_to) continue;
    bytes += end - std::max(first, covered_to);
    covered_to = end;
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

void ObjectReport::object_json(JsonWriter& json, std::uint32_t slot) const {
  const DirectoryWriter& directory = from_.parts.catalog.directory();
  const Slot& entry = directory.at(slot);
  const bool is_live = from_.parts.sessions.is_live(entry.session);
  std::uint64_t blob_count = 0;
  const Result<RecordView> record = from_.parts.catalog.record(slot);
  if (record.is_ok()) blob_count = record->blobs().size();
  json.field("id", to_hex(entry.id))
      .field("generation", directory.generation(slot))
      .field("state", state_name(directory.state(slot)))
      .field("scope", is_live ? from_.parts.sessions.scope(entry.session) : std::string_view())
      .field("session", is_live ? from_.parts.sessions.name(entry.session) : std::string_view());
  write_names(json, from_.parts.names.names_of(entry.id));
  json.field("nbytes", entry.payload_bytes)
      .field("record_bytes", entry.record_bytes)
      .field("blob_count", blob_count)
      .field("slot", slot)
      .field("sealed_unix_ns", entry.sealed_unix_ns)
      .field("creator", entry.creator);
  write_set(json, slot);
}

// Explains why the object is where it is.
void ObjectReport::write_explanation(JsonWriter& json, std::uint32_t slot) const {
  std::string why;
  if (from_.parts.catalog.blobs_of(slot).empty()) {
    why = "its payload is part of its record, which always stays in memory";
  } else if (!from_.parts.catalog.is_resident(slot)) {
    why = "memory was needed for other objects, so it was spilled; a get reloads it";
    if (from_.pager.is_loading(slot)) why = "it is being reloaded from disk";
  } else if (!from_.pager.enabled()) {
    why = from_.parts.catalog.directory().hints(slot).drop_recompute_code() == 0
              ? "this store has no spill folder, so objects are not evicted"
              : "this store has no spill folder, so objects that can be recomputed, such as this one, are dropped when "
                "memory is short";
  } else {
    const Explanation explained = from_.pager.policy().explain(slot, from_.clock.monotonic_ns());
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

void ObjectReport::write_set(JsonWriter& json, std::uint32_t slot) const {
  const Slot& entry = from_.parts.catalog.directory().at(slot);
  const SlotHints hints = from_.parts.catalog.directory().hints(slot);
  const std::uint32_t* set = from_.parts.sets.find_field(entry.session, entry.locality_set);
  const std::uint32_t consumed_count = from_.parts.consumers.count(slot);
  json.field("locality_set", set == nullptr ? std::string_view() : from_.parts.sets.name(*set))
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

// Of the objects that refer to a blob and are not deleted, the one that was sealed first: the blob counts as its own,
// and as referenced by the others.
std::optional<std::uint32_t> ObjectReport::owner_of(std::uint32_t blob) const {
  const DirectoryWriter& directory = from_.parts.catalog.directory();
  std::optional<std::uint32_t> owner;
  for (const std::uint32_t slot : from_.parts.blobs.referencing_slots(blob)) {
    if (!directory.is_findable(slot)) continue;
    const auto age = [&](std::uint32_t of) { return std::pair(directory.at(of).sealed_unix_ns, of); };
    if (!owner || age(slot) < age(*owner)) owner = slot;
  }
  return owner;
}

void ObjectReport::write_blobs(JsonWriter& json, const RecordView& record) const {
  std::unordered_map<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> ranges;  // by blob
  for (const BufferRef& buffer : record.buffers()) {
    if (buffer.blob != kInlineBlob) ranges[buffer.blob].emplace_back(buffer.offset, buffer.offset + buffer.length);
  }
  std::uint64_t references = 0;
  json.key("blobs").open_array();
  for (const RecordBlob& ref : record.blobs()) {
    const BlobLocation place = from_.parts.blobs.place(ref.blob);
    const bool is_resident = from_.parts.blobs.is_resident(ref.blob);
    json.open_object()
        .field("blob", ref.blob)
        .field("generation", ref.generation)
        .field("resident", is_resident)
        .field("has_copy", from_.parts.blobs.copy(ref.blob) != 0)
        .field("segment", place.segment)
        .field("offset", place.offset)
        .field("length", place.length)
        .field("used", covered_bytes(ranges[ref.blob]))
        .field("extent", is_resident ? from_.parts.blobs.extent_bytes(ref.blob) : 0)
        .field("refs", from_.parts.blobs.references(ref.blob))
        .key("owner");
    references += from_.parts.blobs.references(ref.blob);
    const auto owner = references <= kMaxReferencesRead ? owner_of(ref.blob) : std::nullopt;
    if (owner) {
      json.value(to_hex(from_.parts.catalog.directory().at(*owner).id));
    } else {
      json.null();
    }
    json.close_object();
  }
  json.close_array();
}

Result<std::string> ObjectReport::info_json(const IdBytes& id) const {
  const auto slot = from_.objects.find(id);
  if (!slot) {
    const LookupOutcome outcome = from_.objects.lookup(id);
    std::string text = concat("object ", to_hex(id), " is not in the store");
    if (outcome.code == Code::kObjectLost) text = concat("object ", to_hex(id), " was lost: ", outcome.message);
    if (outcome.code == Code::kObjectDropped) text = concat("object ", to_hex(id), " was dropped: ", outcome.message);
    return Status(outcome.code, std::move(text));
  }
  const DirectoryWriter& directory = from_.parts.catalog.directory();
  ASSIGN_OR_RETURN(const RecordView record, from_.parts.catalog.record(*slot));
  const PinTarget target{*slot, directory.generation(*slot)};
  const std::vector<PinCount> pinned_by = from_.parts.pins.pinned_by(target);
  JsonWriter json;
  json.open_object();
  object_json(json, *slot);
  json.field("inline_bytes", record.payload().size());
  write_explanation(json, *slot);
  write_blobs(json, record);
  std::uint64_t pins = 0;
  json.key("pinned_by").open_array();
  for (const PinCount& count : pinned_by) {
    const ClientState* state = from_.clients.find(count.client);
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

Result<std::string> ObjectReport::list_json(const ListQuery& query) const {
  std::uint32_t session = 0;
  if (!query.all_sessions) {
    ASSIGN_OR_RETURN(session, from_.parts.sessions.index_of(query.session));
  }
  const DirectoryWriter& directory = from_.parts.catalog.directory();
  const std::uint32_t limit = std::clamp<std::uint32_t>(query.limit, 1, 100'000);
  std::uint32_t listed = 0;
  std::uint32_t slot = query.cursor;
  JsonWriter json;
  json.open_object().key("objects").open_array();
  for (; slot < directory.size() && listed < limit; ++slot) {
    if (!directory.is_findable(slot)) continue;
    const Slot& entry = directory.at(slot);
    if (!query.all_sessions && entry.session != session) continue;
    if (!query.pattern.empty() && query.pattern != "*") {
      const std::vector<std::string> names = from_.parts.names.names_of(entry.id);
      const bool matched = glob_match(query.pattern, to_hex(entry.id)) ||
                           std::any_of(names.begin(), names.end(),
                                       [&](const std::string& name) { return glob_match(query.pattern, name); });
      if (!matched) continue;
    }
    ++listed;
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

}  // namespace entrepot
