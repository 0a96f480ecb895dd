#include "store/object/object_table.h"

#include <algorithm>

#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

BlobRef ref_of(const BlobWriter& blobs, std::uint32_t blob) { return {blob, blobs.generation(blob)}; }

}  // namespace

ObjectTable::ObjectTable(const ObjectTableDeps& deps)
    : deps_(deps), directory_(deps.memory), blobs_(deps.memory), index_(deps.memory) {}

Result<RecordView> ObjectTable::record(std::uint32_t slot) const {
  const Slot& entry = directory_.at(slot);
  return deps_.records.view(entry.record_offset, entry.record_bytes);
}

std::uint32_t ObjectTable::take_generation() {
  auto& seed = deps_.memory.root().generation_seed;
  std::uint32_t generation = 0;
  do {
    generation = static_cast<std::uint32_t>(seed.load(std::memory_order_relaxed) + 1);
    seed.store(generation, std::memory_order_relaxed);
  } while (generation == 0 || generation >= kLastGeneration - 1);
  return generation;
}

SealOutcome ObjectTable::seal(std::uint32_t client, const SealSpec& spec) {
  SealOutcome outcome;
  if (const auto existing = find(spec.id)) {
    outcome.slot = *existing;
    outcome.generation = directory_.generation(*existing);
    if (is_same(*existing, spec)) {
      const Result<std::uint32_t> session = deps_.sessions.index_of(spec.session);
      if (!session.is_ok()) {
        outcome.status = session.status();
      } else if (!spec.name.empty()) {
        outcome.status = deps_.names.bind(*session, spec.name, spec.id, outcome.generation, spec.replace);
      }
      return outcome;
    }
    if (!spec.replace) {
      outcome.status =
          Status(Code::kObjectExists,
                 concat("object ", to_hex(spec.id),
                        " is already sealed: use another ID, or pass replace=True to put a new generation"));
      return outcome;
    }
  }
  ValidatedSeal validated;
  outcome.status = check(client, spec, validated);
  if (!outcome.status.is_ok()) return outcome;
  return publish(client, spec, validated);
}

SealOutcome ObjectTable::publish(std::uint32_t client, const SealSpec& spec, const ValidatedSeal& validated) {
  SealOutcome outcome;
  // Grow whatever may have to grow before anything is published.
  if (!spec.name.empty()) outcome.status = deps_.names.prepare();
  if (outcome.status.is_ok()) outcome.status = index_.prepare();
  if (!outcome.status.is_ok()) return outcome;
  const Result<std::uint32_t> slot = directory_.allocate();
  if (!slot.is_ok()) {
    outcome.status = slot.status();
    return outcome;
  }
  Result<std::vector<std::uint32_t>> fresh = publish_blobs(spec);
  if (!fresh.is_ok()) {
    directory_.abandon(*slot);
    outcome.status = fresh.status();
    return outcome;
  }
  std::vector<BlobRef> refs;
  std::uint32_t bytes = 0;
  const Result<std::uint64_t> record = write_record(spec, *fresh, refs, bytes);
  if (!record.is_ok()) {
    undo_blobs(*fresh);
    directory_.abandon(*slot);
    outcome.status = record.status();
    return outcome;
  }
  ENTREPOT_SYNC_POINT("seal.record");

  SlotFields fields;
  fields.id = spec.id;
  fields.session = validated.session;
  fields.record_offset = *record;
  fields.record_bytes = bytes;
  fields.payload_bytes = validated.payload_bytes;
  fields.sealed_unix_ns = deps_.clock.unix_ns();
  fields.creator = client;
  fields.locality_set = validated.locality_set;
  fields.hints.consumers = validated.consumers;
  fields.hints.recomputed =
      dropped_.contains(spec.id) || (validated.replaced && directory_.hints(*validated.replaced).recomputed);
  const MemoryKind kind = spec.blobs.empty() ? MemoryKind::kUnknown : deps_.pool.kind(spec.blobs[0].segment);
  directory_.table().set_next_generation(*slot, take_generation());
  ENTREPOT_SYNC_POINT("seal.generation");
  directory_.publish_sealed(*slot, fields, kind);
  ENTREPOT_SYNC_POINT("seal.published");
  for (const BlobRef& ref : refs)
    add_slot_reference(ref.blob, *slot);
  for (const BlobRange& range : spec.blobs)
    deps_.pool.take_for_blob(range.segment, range.offset, range.length);
  ++sealed_;
  payload_bytes_ += validated.payload_bytes;
  deps_.sessions.add_object(validated.session, *slot, validated.payload_bytes);

  if (validated.replaced) {
    if (!index_.replace(spec.id, *validated.replaced, *slot)) {
      log_error("object ", to_hex(spec.id), " was not in the index when it was replaced");
    }
    ENTREPOT_SYNC_POINT("seal.swapped");
    unlink(*validated.replaced);
    ENTREPOT_SYNC_POINT("seal.unlinked");
    free_or_defer({{*validated.replaced, directory_.generation(*validated.replaced)}});
  } else {
    const Status indexed = index_.insert(spec.id, *slot);
    if (!indexed.is_ok()) {  // nobody can have found it: undo it
      unlink(*slot);
      free_or_defer({{*slot, directory_.generation(*slot)}});
      outcome.status = indexed;
      return outcome;
    }
  }
  ENTREPOT_SYNC_POINT("seal.indexed");
  lost_.erase(spec.id);
  erase_drop_marker(spec.id);
  outcome.slot = *slot;
  outcome.generation = directory_.generation(*slot);
  if (listener_ != nullptr && !refs.empty()) listener_->object_sealed(*slot);
  if (!spec.name.empty()) {
    // Whether it may be bound was checked, so only lack of memory remains. The object stays; the error says that its
    // name is missing.
    outcome.status = deps_.names.bind(validated.session, spec.name, spec.id, outcome.generation, spec.replace)
                         .with_context("the object was sealed, but its name was not bound");
  }
  return outcome;
}

Result<std::vector<std::uint32_t>> ObjectTable::publish_blobs(const SealSpec& spec) {
  std::vector<std::uint32_t> fresh;
  for (const BlobRange& range : spec.blobs) {
    const Result<std::uint32_t> blob = blobs_.allocate();
    if (!blob.is_ok()) {
      undo_blobs(fresh);
      return blob.status();
    }
    const std::uint32_t generation = deps_.pool.generation(range.segment);
    blobs_.publish(*blob, {range.segment, range.offset, range.length, generation}, deps_.pool.kind(range.segment));
    ENTREPOT_SYNC_POINT("seal.blob");
    fresh.push_back(*blob);
  }
  return fresh;
}

void ObjectTable::undo_blobs(const std::vector<std::uint32_t>& blobs) {
  for (const std::uint32_t blob : blobs)
    blobs_.free(blob);  // the ranges are still part of the lease
}

Result<std::uint64_t> ObjectTable::write_record(const SealSpec& spec, const std::vector<std::uint32_t>& fresh,
                                                std::vector<BlobRef>& refs, std::uint32_t& bytes) {
  std::vector<BufferRef> buffers;
  buffers.reserve(spec.buffers.size());
  for (const std::uint32_t blob : fresh)
    refs.push_back(ref_of(blobs_, blob));
  std::unordered_set<std::uint32_t> shared;
  for (const BufferSpec& buffer : spec.buffers) {
    if (buffer.blob == kInlineBlob) {
      buffers.push_back({kInlineBlob, 0, buffer.offset, buffer.length});
    } else if ((buffer.blob & kNewBlobBit) != 0) {
      const std::uint32_t blob = fresh[buffer.blob & ~kNewBlobBit];
      buffers.push_back({blob, blobs_.generation(blob), buffer.offset, buffer.length});
    } else {
      buffers.push_back({buffer.blob, buffer.generation, buffer.offset, buffer.length});
      if (shared.insert(buffer.blob).second) refs.push_back(ref_of(blobs_, buffer.blob));
    }
  }
  const RecordParts parts{buffers, refs, spec.tree, spec.payload};
  Result<std::uint64_t> written = deps_.records.write(parts, bytes);
  if (written.code() != Code::kStoreFull) return written;
  return Status(Code::kStoreFull,
                concat("metadata and small values: ", written.status().message(), "; ", deps_.pool.describe_pressure()),
                true);
}

LookupOutcome ObjectTable::lookup(const IdBytes& id) const {
  if (const auto slot = find(id)) return {Code::kOk, *slot, directory_.generation(*slot), is_resident(*slot), {}};
  if (const auto dropped = dropped_.find(id); dropped != dropped_.end()) {
    return {Code::kObjectDropped, 0, 0, false, drop_reason(dropped->second)};
  }
  if (const auto lost = lost_.find(id); lost != lost_.end()) return {Code::kObjectLost, 0, 0, false, lost->second};
  return {Code::kObjectNotFound, 0, 0, false, {}};
}

std::optional<std::uint32_t> ObjectTable::find(const IdBytes& id) const {
  const auto slot = index_.find(id);
  if (!slot || !directory_.is_findable(*slot)) return std::nullopt;
  return slot;
}

// ---- deletion ----

void ObjectTable::unlink(std::uint32_t slot) {
  const Slot& entry = directory_.at(slot);
  directory_.mark_deleting(slot);
  ENTREPOT_SYNC_POINT("delete.marked");
  index_.remove(entry.id, slot);  // no effect if it was replaced
  if (deps_.spill != nullptr && directory_.in_manifest(slot)) {
    deps_.spill->forget(entry.id, directory_.generation(slot));
    directory_.set_in_manifest(slot, false);
  }
  --sealed_;
  payload_bytes_ -= entry.payload_bytes;
  deps_.sessions.drop_object(entry.session, slot, entry.payload_bytes);
  if (listener_ != nullptr) listener_->object_ended(slot);
  deps_.consumptions.forget(slot);
}

std::vector<std::uint8_t> ObjectTable::remove(std::span<const IdBytes> ids) {
  std::vector<std::uint8_t> result(ids.size(), 0);
  std::vector<PinTarget> victims;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (lost_.erase(ids[i]) != 0) result[i] = 1;
    if (is_dropped(ids[i])) {
      result[i] = 1;
      erase_drop_marker(ids[i]);
      deps_.names.drop_id(ids[i]);
    }
    const auto slot = find(ids[i]);
    if (!slot) continue;
    result[i] = 1;
    victims.push_back({*slot, directory_.generation(*slot)});
    unlink(*slot);
    ENTREPOT_SYNC_POINT("delete.unlinked");
    deps_.names.drop_id(ids[i]);
  }
  free_or_defer(std::move(victims));
  return result;
}

void ObjectTable::remove_session(std::uint32_t session) {
  const std::vector<std::uint32_t> slots = deps_.sessions.slots_of(session);
  std::vector<PinTarget> victims;
  victims.reserve(slots.size());
  for (const std::uint32_t slot : slots) {
    const IdBytes id = directory_.at(slot).id;
    victims.push_back({slot, directory_.generation(slot)});
    unlink(slot);
    deps_.names.drop_id(id);
  }
  free_or_defer(std::move(victims));
  erase_drop_markers_of(session);
  deps_.names.drop_session(session);
}

void ObjectTable::free_or_defer(std::vector<PinTarget> victims) {
  if (victims.empty()) return;
  const std::vector<std::uint8_t> pinned = deps_.pins.scan(victims);
  for (std::size_t i = 0; i < victims.size(); ++i) {
    if (pinned[i] != 0) {
      deferred_.push_back(victims[i]);
    } else {
      free_object(victims[i].slot);
    }
  }
}

bool ObjectTable::rescan() {
  const bool given_back = is_withholding() && release_withheld_memory();
  if (deferred_.empty()) return given_back;
  const std::size_t before = deferred_.size();
  free_or_defer(std::exchange(deferred_, {}));
  return given_back || deferred_.size() != before;
}

void ObjectTable::free_object(std::uint32_t slot) {
  const Slot& entry = directory_.at(slot);
  const std::uint64_t record_offset = entry.record_offset;
  const std::uint32_t record_size = entry.record_bytes;
  const bool has_record = directory_.state(slot) != ObjectState::kLost;
  std::vector<BlobRef> refs;
  if (has_record) {
    const Result<RecordView> view = record(slot);
    if (view.is_ok()) {
      refs.assign(view->blobs().begin(), view->blobs().end());
    } else {
      log_error("slot ", slot, ": ", view.status().to_string());
    }
  }
  directory_.free(slot);
  ENTREPOT_SYNC_POINT("free.slot");
  for (const BlobRef& ref : refs)
    drop_slot_reference(ref.blob, slot);
  if (!has_record) return;
  const Status freed = deps_.records.free(record_offset, record_size);
  if (!freed.is_ok()) log_error("record of slot ", slot, ": ", freed.to_string());
}

std::uint64_t ObjectTable::deferred_bytes() const {
  std::uint64_t bytes = 0;
  for (const PinTarget& target : deferred_)
    bytes += directory_.at(target.slot).payload_bytes;
  return bytes;
}

}  // namespace entrepot
