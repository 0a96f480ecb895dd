// Object residency: references to blobs, eviction, loading, and the manifest.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "os/log.h"
#include "store/object/object_table.h"
#include "store/sync_point.h"

namespace entrepot {

// ---- references ----

void ObjectTable::add_slot_reference(std::uint32_t blob, std::uint32_t slot) {
  blobs_.add_reference(blob);
  if (first_referencing_slot_.size() <= blob) first_referencing_slot_.resize(std::size_t{blob} + 1, kNoReference);
  if (first_referencing_slot_[blob] == kNoReference) {
    first_referencing_slot_[blob] = slot;
  } else {
    more_referencing_slots_.emplace(blob, slot);
  }
}

void ObjectTable::drop_slot_reference(std::uint32_t blob, std::uint32_t slot) {
  const auto [first, last] = more_referencing_slots_.equal_range(blob);
  if (first_referencing_slot_[blob] == slot) {
    first_referencing_slot_[blob] = first == last ? kNoReference : first->second;
    if (first != last) more_referencing_slots_.erase(first);
  } else {
    const auto matching = std::find_if(first, last, [slot](const auto& entry) { return entry.second == slot; });
    if (matching != last) more_referencing_slots_.erase(matching);
  }
  release_blob(blob);
}

std::vector<std::uint32_t> ObjectTable::referencing_slots(std::uint32_t blob) const {
  std::vector<std::uint32_t> slots;
  if (blob >= first_referencing_slot_.size() || first_referencing_slot_[blob] == kNoReference) return slots;
  slots.push_back(first_referencing_slot_[blob]);
  const auto [first, last] = more_referencing_slots_.equal_range(blob);
  for (auto entry = first; entry != last; ++entry)
    slots.push_back(entry->second);
  return slots;
}

void ObjectTable::release_blob(std::uint32_t blob) {
  if (blobs_.drop_reference(blob) != 0) return;
  const BlobLocation place = blobs_.place(blob);
  const bool resident = blobs_.is_resident(blob);
  const bool counted = resident || blobs_.state(blob) == BlobState::kSpilled;
  const SpillLocation copy = blobs_.copy(blob);
  const BlobKey key = blobs_.key(blob);
  if (resident && copy != 0) clean_bytes_ -= extent_of(blob);
  if (counted && !resident) spilled_bytes_ -= place.length;
  blobs_.free(blob);
  ENTREPOT_SYNC_POINT("free.blob");
  if (resident) deps_.pool.free_blob_range(place.segment, place.offset, place.length);
  if (copy != 0 && deps_.spill != nullptr) deps_.spill->release(key, copy, place.length);
}

// ---- figures ----

std::uint64_t ObjectTable::extent_of(std::uint32_t blob) const {
  const BlobLocation place = blobs_.place(blob);
  return blob_extent_bytes(place.offset, place.length);
}

std::vector<std::uint32_t> ObjectTable::blobs_of(std::uint32_t slot) const {
  std::vector<std::uint32_t> result;
  const Result<RecordView> view = record(slot);
  if (!view.is_ok()) return result;
  result.reserve(view->blobs().size());
  for (const BlobRef& ref : view->blobs())
    result.push_back(ref.blob);
  return result;
}

bool ObjectTable::is_clean(std::uint32_t slot) const {
  const std::vector<std::uint32_t> blobs = blobs_of(slot);
  return !blobs.empty() && std::all_of(blobs.begin(), blobs.end(), [&](auto blob) { return blobs_.copy(blob) != 0; });
}

std::uint64_t ObjectTable::resident_bytes(std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t blob : blobs_of(slot)) {
    if (blobs_.is_resident(blob)) bytes += extent_of(blob);
  }
  return bytes;
}

// ---- eviction ----

ObjectTable::Eviction ObjectTable::evict(std::span<const std::uint32_t> slots) {
  // A blob may leave if it has a copy and none of the objects that refer to it is pinned. One that is being deleted
  // counts as pinned.
  std::map<std::uint32_t, std::vector<std::uint32_t>> leaving_blobs;  // blob -> slots
  std::set<std::uint32_t> marked;
  std::vector<PinTarget> targets;
  for (const std::uint32_t slot : slots) {
    for (const std::uint32_t blob : blobs_of(slot)) {
      if (!blobs_.is_resident(blob) || blobs_.copy(blob) == 0 || leaving_blobs.contains(blob)) continue;
      std::vector<std::uint32_t> referencing = referencing_slots(blob);
      if (!std::all_of(referencing.begin(), referencing.end(), [&](auto user) { return directory_.is_findable(user); }))
        continue;
      for (const std::uint32_t user : referencing) {
        if (!is_resident(user) || !marked.insert(user).second) continue;
        directory_.mark_evicting(user);
        targets.push_back({user, directory_.generation(user)});
      }
      leaving_blobs.emplace(blob, std::move(referencing));
    }
  }
  ENTREPOT_SYNC_POINT("evict.marked");
  const std::vector<std::uint8_t> pinned = deps_.pins.scan(targets);
  std::set<std::uint32_t> pinned_slots;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (pinned[i] != 0) pinned_slots.insert(targets[i].slot);
  }
  std::erase_if(leaving_blobs, [&](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(),
                       [&](auto user) { return pinned_slots.contains(user); });
  });
  std::set<std::uint32_t> leaving;
  for (const auto& [blob, referencing] : leaving_blobs)
    leaving.insert(referencing.begin(), referencing.end());

  Eviction result;
  for (const std::uint32_t slot : marked) {
    if (leaving.contains(slot)) {
      directory_.mark_spilled(slot);
      result.evicted.push_back(slot);
    } else {
      directory_.mark_sealed(slot);
    }
    ENTREPOT_SYNC_POINT("evict.object");
  }
  for (const auto& [blob, referencing] : leaving_blobs) {
    const BlobLocation place = blobs_.place(blob);
    const std::uint64_t extent = extent_of(blob);
    blobs_.mark_spilled(blob);
    ENTREPOT_SYNC_POINT("evict.blob");
    deps_.pool.free_blob_range(place.segment, place.offset, place.length);
    clean_bytes_ -= extent;
    spilled_bytes_ += place.length;
    result.bytes += extent;
  }
  return result;
}

void ObjectTable::set_copy(std::uint32_t blob, SpillLocation location) {
  blobs_.set_copy(blob, location);
  if (blobs_.is_resident(blob)) clean_bytes_ += extent_of(blob);
}

// ---- loading ----

std::vector<std::uint32_t> ObjectTable::on_blob_loaded(std::uint32_t blob, const BlobLocation& place) {
  spilled_bytes_ -= place.length;
  blobs_.publish_again(blob, place, deps_.pool.kind(place.segment));
  clean_bytes_ += extent_of(blob);
  ENTREPOT_SYNC_POINT("load.blob");
  std::vector<std::uint32_t> resident;
  for (const std::uint32_t user : referencing_slots(blob)) {
    if (directory_.state(user) != ObjectState::kSpilled) continue;
    const std::vector<std::uint32_t> blobs = blobs_of(user);
    if (!std::all_of(blobs.begin(), blobs.end(), [&](auto blob_number) { return blobs_.is_resident(blob_number); }))
      continue;
    directory_.mark_sealed(user);
    ENTREPOT_SYNC_POINT("load.object");
    resident.push_back(user);
  }
  return resident;
}

void ObjectTable::mark_lost(std::uint32_t slot, std::string why) {
  const IdBytes id = directory_.at(slot).id;
  log_error("object ", to_hex(id), " of ", directory_.at(slot).payload_bytes, " bytes is lost: its copy is damaged");
  lost_[id] = std::move(why);  // before waiting readers are notified of its end
  unlink(slot);
  deps_.names.drop_id(id);
  free_or_defer({{slot, directory_.generation(slot)}});
}

// ---- the manifest ----

void ObjectTable::remember(std::uint32_t slot) {
  if (deps_.spill == nullptr || !is_clean(slot)) return;
  const Slot& entry = directory_.at(slot);
  const Result<RecordView> view = record(slot);
  if (!view.is_ok() || !deps_.sessions.is_live(entry.session)) return;
  SpilledObject object;
  object.id = entry.id;
  object.generation = directory_.generation(slot);
  object.scope = deps_.sessions.scope(entry.session);
  object.session = deps_.sessions.name(entry.session);
  object.ttl_seconds = deps_.sessions.at(entry.session).ttl_seconds;
  object.names = deps_.names.names_of(entry.id);
  object.sealed_unix_ns = entry.sealed_unix_ns;
  object.record.assign(reinterpret_cast<const char*>(view->bytes().data()), view->bytes().size());
  for (const BlobRef& ref : view->blobs())
    object.blobs.push_back({blobs_.key(ref.blob), blobs_.place(ref.blob).length, blobs_.copy(ref.blob)});
  deps_.spill->remember(object);
  directory_.set_in_manifest(slot, true);
}

Status ObjectTable::adopt_spilled(const SpilledObject& object, std::uint32_t session, RecoveredBlobs& adopted_blobs) {
  const auto bytes = std::as_bytes(std::span(object.record.data(), object.record.size()));
  ASSIGN_OR_RETURN(const RecordView view, RecordView::parse(bytes));
  RETURN_IF_ERROR(view.check_crc());
  if (view.blobs().size() != object.blobs.size() || object.blobs.empty()) {
    return Status(Code::kCorruptData, concat("the manifest lists ", object.blobs.size(), " copies for object ",
                                             to_hex(object.id), ", but its record lists ", view.blobs().size()));
  }
  if (find(object.id)) return Status(Code::kObjectExists, concat("object ", to_hex(object.id), " already exists"));
  std::vector<std::uint32_t> retained;
  const Status done = adopt_spilled_retained(object, view, session, adopted_blobs, retained);
  for (const std::uint32_t blob : retained)
    release_blob(blob);  // the slot refers to it now, or nothing does
  return done;
}

Status ObjectTable::adopt_spilled_retained(const SpilledObject& object, const RecordView& view, std::uint32_t session,
                                           RecoveredBlobs& adopted_blobs, std::vector<std::uint32_t>& retained) {
  std::unordered_map<std::uint32_t, BlobRef> numbers;  // old -> new
  std::vector<BlobRef> refs;
  for (std::size_t i = 0; i < object.blobs.size(); ++i) {
    const SpilledBlob& copy = object.blobs[i];
    auto it = adopted_blobs.find(copy.location);
    if (it == adopted_blobs.end() || !blobs_.exists(it->second.blob, it->second.generation)) {
      ASSIGN_OR_RETURN(const std::uint32_t blob, blobs_.allocate());
      const Result<SpillLocation> location = deps_.spill->rebind(copy, {blob, blobs_.next_generation(blob)});
      if (!location.is_ok()) {
        blobs_.abandon(blob);
        return location.status();
      }
      const BlobRef ref{blob, blobs_.publish_spilled(blob, copy.length, *location)};
      spilled_bytes_ += copy.length;
      it = adopted_blobs.insert_or_assign(copy.location, ref).first;
    }
    retain_blob(it->second.blob);
    retained.push_back(it->second.blob);
    refs.push_back(it->second);
    numbers[view.blobs()[i].blob] = it->second;
  }
  std::vector<BufferRef> buffers(view.buffers().begin(), view.buffers().end());
  SlotFields fields;
  for (BufferRef& buffer : buffers) {
    fields.payload_bytes += buffer.length;
    if (buffer.blob == kInlineBlob) continue;
    const BlobRef& renumbered = numbers[buffer.blob];
    buffer.blob = renumbered.blob;
    buffer.generation = renumbered.generation;
  }
  const std::string_view payload(reinterpret_cast<const char*>(view.payload().data()), view.payload().size());
  fields.id = object.id;
  fields.session = session;
  fields.sealed_unix_ns = object.sealed_unix_ns;
  ASSIGN_OR_RETURN(const std::uint32_t slot, directory_.allocate());
  const Result<std::uint64_t> record = deps_.records.write({buffers, refs, view.tree(), payload}, fields.record_bytes);
  if (!record.is_ok()) {
    directory_.abandon(slot);
    return record.status();
  }
  fields.record_offset = *record;
  // Same generation as before, so that existing references stay valid.
  directory_.table().set_next_generation(slot, object.generation);
  directory_.publish(slot, fields, ObjectState::kSpilled, MemoryKind::kUnknown);
  for (const BlobRef& ref : refs)
    add_slot_reference(ref.blob, slot);
  ++sealed_;
  payload_bytes_ += fields.payload_bytes;
  deps_.sessions.add_object(session, slot, fields.payload_bytes);
  return index_.insert(object.id, slot);
}

}  // namespace entrepot
