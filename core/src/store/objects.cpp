#include "store/objects.h"

#include <algorithm>

#include "base/log.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

BlobRef ref_of(const BlobWriter& blobs, std::uint32_t blob) { return {blob, blobs.generation(blob)}; }

}  // namespace

ObjectTable::ObjectTable(const ObjectParts& parts)
    : parts_(parts), directory_(parts.memory), blobs_(parts.memory), index_(parts.memory) {}

Result<RecordView> ObjectTable::record(std::uint32_t slot) const {
  const Slot& entry = directory_.at(slot);
  return parts_.records.view(entry.record_offset, entry.record_bytes);
}

std::uint32_t ObjectTable::take_generation() {
  auto& seed = parts_.memory.root().generation_seed;
  std::uint32_t generation = 0;
  do {
    generation = static_cast<std::uint32_t>(seed.load(std::memory_order_relaxed) + 1);
    seed.store(generation, std::memory_order_relaxed);
  } while (generation == 0 || generation >= kLastGeneration - 1);
  return generation;
}

SealOutcome ObjectTable::seal(std::uint32_t client, const SealSpec& spec) {
  SealOutcome outcome;
  if (const auto there = find(spec.id)) {
    outcome.slot = *there;
    outcome.generation = directory_.generation(*there);
    if (is_same(*there, spec)) {
      const Result<std::uint32_t> session = parts_.sessions.index_of(spec.session);
      if (!session.is_ok()) {
        outcome.status = session.status();
      } else if (!spec.name.empty()) {
        outcome.status = parts_.names.bind(*session, spec.name, spec.id, outcome.generation, spec.replace);
      }
      return outcome;
    }
    if (!spec.replace) {
      outcome.status =
          Status(Code::kObjectExists,
                 concat("object ", to_hex(spec.id),
                        " is sealed already: use another ID, or pass replace=True to put a new generation"));
      return outcome;
    }
  }
  Placed placed;
  outcome.status = check(client, spec, placed);
  if (!outcome.status.is_ok()) return outcome;
  return publish(client, spec, placed);
}

SealOutcome ObjectTable::publish(std::uint32_t client, const SealSpec& spec, const Placed& placed) {
  SealOutcome outcome;
  // Grow whatever may have to grow before anything is published.
  if (!spec.name.empty()) outcome.status = parts_.names.prepare();
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
  fields.session = placed.session;
  fields.record_offset = *record;
  fields.record_bytes = bytes;
  fields.payload_bytes = placed.payload_bytes;
  fields.sealed_unix_ns = parts_.clock.unix_ns();
  fields.creator = client;
  fields.locality_set = placed.locality_set;
  fields.hints.consumers = placed.consumers;
  fields.hints.made_again =
      dropped_.contains(spec.id) || (placed.replaced && directory_.hints(*placed.replaced).made_again);
  const MemoryKind kind = spec.blobs.empty() ? MemoryKind::kUnknown : parts_.pool.kind(spec.blobs[0].segment);
  directory_.table().set_next_generation(*slot, take_generation());
  ENTREPOT_SYNC_POINT("seal.generation");
  directory_.publish_sealed(*slot, fields, kind);
  ENTREPOT_SYNC_POINT("seal.published");
  for (const BlobRef& ref : refs)
    add_user(ref.blob, *slot);
  for (const BlobRange& range : spec.blobs)
    parts_.pool.take_for_blob(range.segment, range.offset, range.length);
  ++sealed_;
  payload_bytes_ += placed.payload_bytes;
  parts_.sessions.add_object(placed.session, *slot, placed.payload_bytes);

  if (placed.replaced) {
    if (!index_.replace(spec.id, *placed.replaced, *slot)) {
      log_error("object ", to_hex(spec.id), " was not in the index when it was replaced");
    }
    ENTREPOT_SYNC_POINT("seal.swapped");
    unlink(*placed.replaced);
    ENTREPOT_SYNC_POINT("seal.unlinked");
    collect({{*placed.replaced, directory_.generation(*placed.replaced)}});
  } else {
    const Status indexed = index_.insert(spec.id, *slot);
    if (!indexed.is_ok()) {  // nobody can have found it: undo it
      unlink(*slot);
      collect({{*slot, directory_.generation(*slot)}});
      outcome.status = indexed;
      return outcome;
    }
  }
  ENTREPOT_SYNC_POINT("seal.indexed");
  lost_.erase(spec.id);
  forget_dropped(spec.id);
  outcome.slot = *slot;
  outcome.generation = directory_.generation(*slot);
  if (listener_ != nullptr && !refs.empty()) listener_->object_sealed(*slot);
  if (!spec.name.empty()) {
    // Whether it may be bound was checked, so only lack of memory remains. The object stays; the error says that its
    // name is missing.
    outcome.status = parts_.names.bind(placed.session, spec.name, spec.id, outcome.generation, spec.replace)
                         .with_context("the object is sealed, but its name is not bound");
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
    const std::uint32_t generation = parts_.pool.generation(range.segment);
    blobs_.publish(*blob, {range.segment, range.offset, range.length, generation}, parts_.pool.kind(range.segment));
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
  Result<std::uint64_t> written = parts_.records.write(parts, bytes);
  if (written.code() != Code::kStoreFull) return written;
  return Status(
      Code::kStoreFull,
      concat("metadata and small values: ", written.status().message(), "; ", parts_.pool.describe_pressure()), true);
}

LookupOutcome ObjectTable::lookup(const IdBytes& id) const {
  if (const auto slot = find(id)) return {Code::kOk, *slot, directory_.generation(*slot), is_resident(*slot), {}};
  if (const auto dropped = dropped_.find(id); dropped != dropped_.end()) {
    return {Code::kObjectDropped, 0, 0, false, why_dropped(dropped->second)};
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
  if (parts_.cold != nullptr && directory_.in_manifest(slot)) {
    parts_.cold->forget(entry.id, directory_.generation(slot));
    directory_.set_in_manifest(slot, false);
  }
  --sealed_;
  payload_bytes_ -= entry.payload_bytes;
  parts_.sessions.drop_object(entry.session, slot, entry.payload_bytes);
  if (listener_ != nullptr) listener_->object_ended(slot);
  parts_.consumptions.forget(slot);
}

std::vector<std::uint8_t> ObjectTable::remove(std::span<const IdBytes> ids) {
  std::vector<std::uint8_t> result(ids.size(), 0);
  std::vector<PinTarget> victims;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (lost_.erase(ids[i]) != 0) result[i] = 1;
    if (is_dropped(ids[i])) {
      result[i] = 1;
      forget_dropped(ids[i]);
      parts_.names.drop_id(ids[i]);
    }
    const auto slot = find(ids[i]);
    if (!slot) continue;
    result[i] = 1;
    victims.push_back({*slot, directory_.generation(*slot)});
    unlink(*slot);
    ENTREPOT_SYNC_POINT("delete.unlinked");
    parts_.names.drop_id(ids[i]);
  }
  collect(std::move(victims));
  return result;
}

void ObjectTable::remove_session(std::uint32_t session) {
  const std::vector<std::uint32_t> slots = parts_.sessions.slots_of(session);
  std::vector<PinTarget> victims;
  victims.reserve(slots.size());
  for (const std::uint32_t slot : slots) {
    const IdBytes id = directory_.at(slot).id;
    victims.push_back({slot, directory_.generation(slot)});
    unlink(slot);
    parts_.names.drop_id(id);
  }
  collect(std::move(victims));
  forget_dropped_of(session);
  parts_.names.drop_session(session);
}

void ObjectTable::collect(std::vector<PinTarget> victims) {
  if (victims.empty()) return;
  const std::vector<std::uint8_t> pinned = parts_.pins.scan(victims);
  for (std::size_t i = 0; i < victims.size(); ++i) {
    if (pinned[i] != 0) {
      deferred_.push_back(victims[i]);
    } else {
      free_object(victims[i].slot);
    }
  }
}

bool ObjectTable::rescan() {
  const bool given_back = is_withholding() && give_back_withheld();
  if (deferred_.empty()) return given_back;
  const std::size_t before = deferred_.size();
  collect(std::exchange(deferred_, {}));
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
    drop_user(ref.blob, slot);
  if (!has_record) return;
  const Status freed = parts_.records.free(record_offset, record_size);
  if (!freed.is_ok()) log_error("record of slot ", slot, ": ", freed.to_string());
}

std::uint64_t ObjectTable::deferred_bytes() const {
  std::uint64_t bytes = 0;
  for (const PinTarget& target : deferred_)
    bytes += directory_.at(target.slot).payload_bytes;
  return bytes;
}

}  // namespace entrepot
