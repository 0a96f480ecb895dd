#include "store/object/object_table.h"

#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

ObjectTable::ObjectTable(ObjectParts& parts)
    : parts_(&parts), validator_(parts.sessions, parts.sets, parts.names, parts.pool, parts.catalog, parts.blobs) {}

SealOutcome ObjectTable::seal(std::uint32_t client, const SealSpec& spec) {
  SealOutcome outcome;
  const std::optional<std::uint32_t> existing = find(spec.id);
  if (existing) {
    outcome.slot = *existing;
    outcome.generation = parts_->catalog.directory().generation(*existing);
    if (validator_.is_same(*existing, spec)) {
      const Result<std::uint32_t> session = parts_->sessions.index_of(spec.session);
      if (spec.pin_position) {
        outcome.status = check_pin(client, *spec.pin_position);
        if (!outcome.status.is_ok()) return outcome;
        parts_->pins.place(client, *spec.pin_position, parts_->catalog.target(*existing));
      }
      if (!session.is_ok()) {
        outcome.status = session.status();
      } else if (!spec.name.empty()) {
        outcome.status = bind_name(*session, spec.name, spec.id, outcome.generation, spec.replace);
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
  const Result<ValidatedSeal> validated = validator_.check(client, spec, existing);
  const Status pin = spec.pin_position ? check_pin(client, *spec.pin_position) : Status::ok();
  if (validated.is_ok() && pin.is_ok()) return publish(client, spec, *validated, existing);
  outcome = {};  // without the existing object's slot, which would say that this one was sealed
  outcome.status = validated.is_ok() ? pin : validated.status();
  return outcome;
}

Status ObjectTable::check_pin(std::uint32_t client, std::uint32_t position) const {
  if (parts_->pins.can_place(client, position)) return Status::ok();
  return {Code::kInvalidArgument,
          concat("client ", client, " has no pin at position ", position, " of its table: reserve it before the seal")};
}

SealOutcome ObjectTable::publish(std::uint32_t client, const SealSpec& spec, const ValidatedSeal& validated,
                                 std::optional<std::uint32_t> replaced) {
  ObjectCatalog& catalog = parts_->catalog;
  BlobTable& blobs = parts_->blobs;
  SealOutcome outcome;
  // Grow whatever may have to grow before anything is published.
  if (!spec.name.empty()) outcome.status = parts_->names.prepare();
  if (outcome.status.is_ok()) outcome.status = catalog.prepare();
  if (!outcome.status.is_ok()) return outcome;
  const Result<std::uint32_t> slot = catalog.allocate();
  if (!slot.is_ok()) {
    outcome.status = slot.status();
    return outcome;
  }
  Result<FreshBlobs> fresh = blobs.publish(spec.blobs);  // withdrawn unless an object refers to them
  if (!fresh.is_ok()) {
    catalog.abandon(*slot);
    outcome.status = fresh.status();
    return outcome;
  }
  std::vector<RecordBlob> refs;
  std::uint32_t bytes = 0;
  const Result<std::uint64_t> record = write_record(spec, fresh->blobs(), refs, bytes);
  if (!record.is_ok()) {
    catalog.abandon(*slot);
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
  fields.sealed_unix_ns = parts_->clock.unix_ns();
  fields.creator = client;
  fields.locality_set = validated.locality_set;
  fields.hints.consumers = validated.consumers;
  fields.hints.recomputed =
      parts_->absent.is_dropped(spec.id) || (replaced && catalog.directory().hints(*replaced).recomputed);
  const MemoryKind kind = spec.blobs.empty() ? MemoryKind::kUnknown : parts_->pool.kind(spec.blobs[0].segment);
  catalog.publish_sealed(*slot, fields, kind);
  if (spec.pin_position) parts_->pins.place(client, *spec.pin_position, catalog.target(*slot));
  for (const RecordBlob& ref : refs)
    blobs.add_reference(ref.blob, *slot);
  fresh->commit();
  blobs.take_ranges(spec.blobs);
  catalog.add(*slot);

  if (replaced) {
    if (!catalog.replace(*replaced, *slot)) {
      log_error("object ", to_hex(spec.id), " was not in the index when it was replaced");
    }
    ENTREPOT_SYNC_POINT("seal.swapped");
    parts_->unlink(*replaced);
    ENTREPOT_SYNC_POINT("seal.unlinked");
    parts_->deferred.free_or_defer({catalog.target(*replaced)});
  } else {
    const Status indexed = catalog.insert(*slot);
    if (!indexed.is_ok()) {  // nobody can have found it: undo it
      parts_->unlink(*slot);
      parts_->deferred.free_or_defer({catalog.target(*slot)});
      outcome.status = indexed;
      return outcome;
    }
  }
  ENTREPOT_SYNC_POINT("seal.indexed");
  parts_->absent.forget(spec.id);
  outcome.slot = *slot;
  outcome.generation = catalog.directory().generation(*slot);
  if (parts_->listener != nullptr && !refs.empty()) parts_->listener->object_sealed(*slot);
  if (!spec.name.empty()) {
    // Whether it may be bound was checked, so only lack of memory remains. The object stays; the error says that its
    // name is missing.
    outcome.status = bind_name(validated.session, spec.name, spec.id, outcome.generation, spec.replace)
                         .with_context("the object was sealed, but its name was not bound");
  }
  return outcome;
}

Result<std::uint64_t> ObjectTable::write_record(const SealSpec& spec, std::span<const std::uint32_t> fresh,
                                                std::vector<RecordBlob>& refs, std::uint32_t& bytes) {
  const BlobTable& blobs = parts_->blobs;
  std::vector<BufferRef> buffers;
  buffers.reserve(spec.buffers.size());
  for (const std::uint32_t blob : fresh)
    refs.push_back(blobs.ref(blob));
  std::unordered_set<std::uint32_t> shared;
  for (const BufferSpec& buffer : spec.buffers) {
    if (buffer.blob == kInlineBlob) {
      buffers.push_back({kInlineBlob, 0, buffer.offset, buffer.length});
    } else if ((buffer.blob & kNewBlobBit) != 0) {
      const std::uint32_t blob = fresh[buffer.blob & ~kNewBlobBit];
      buffers.push_back({blob, blobs.generation(blob), buffer.offset, buffer.length});
    } else {
      buffers.push_back({buffer.blob, buffer.generation, buffer.offset, buffer.length});
      if (shared.insert(buffer.blob).second) refs.push_back(blobs.ref(buffer.blob));
    }
  }
  const RecordParts parts{buffers, refs, spec.tree, spec.payload};
  Result<std::uint64_t> written = parts_->records.write(parts, bytes);
  if (written.code() != Code::kStoreFull) return written;
  return Status(
      Code::kStoreFull,
      concat("metadata and small values: ", written.status().message(), "; ", parts_->pool.describe_pressure()), true);
}

LookupOutcome ObjectTable::lookup(const IdBytes& id) const {
  const ObjectCatalog& catalog = parts_->catalog;
  if (const auto slot = catalog.find(id)) {
    return {Code::kOk, *slot, catalog.directory().generation(*slot), catalog.is_resident(*slot), {}};
  }
  return parts_->absent.lookup(id);
}

// ---- names ----

Status ObjectTable::bind_name(std::uint32_t session, std::string_view name, const IdBytes& id, std::uint32_t generation,
                              bool replace) {
  const IdBytes* bound_id = parts_->names.resolve(session, name);
  if (bound_id != nullptr && *bound_id == id) return Status::ok();
  const std::optional<IdBytes> before = bound_id == nullptr ? std::nullopt : std::optional(*bound_id);
  RETURN_IF_ERROR(parts_->names.bind(session, name, id, generation, replace));
  parts_->manifest.name_moved(session, name, before ? &*before : nullptr, &id);
  return Status::ok();
}

bool ObjectTable::unbind_name(std::uint32_t session, std::string_view name) {
  const IdBytes* bound_id = parts_->names.resolve(session, name);
  if (bound_id == nullptr) return false;
  const IdBytes before = *bound_id;
  parts_->names.unbind(session, name);
  parts_->manifest.name_moved(session, name, &before, nullptr);
  return true;
}

// ---- deletion ----

std::vector<std::uint8_t> ObjectTable::remove(std::span<const IdBytes> ids) {
  std::vector<std::uint8_t> result(ids.size(), 0);
  std::vector<PinTarget> victims;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (parts_->absent.forget(ids[i])) {
      result[i] = 1;
      parts_->manifest.names_end(ids[i]);
      parts_->names.drop_id(ids[i]);
    }
    const auto slot = find(ids[i]);
    if (!slot) continue;
    result[i] = 1;
    victims.push_back(unlink_to_remove(*slot, ids[i]));
  }
  parts_->deferred.free_or_defer(std::move(victims));
  return result;
}

std::vector<std::uint8_t> ObjectTable::remove(std::span<const ObjectLife> lives) {
  std::vector<std::uint8_t> result(lives.size(), 0);
  std::vector<PinTarget> victims;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    const auto slot = find(lives[i].id);
    if (!slot || parts_->catalog.target(*slot).generation != lives[i].generation) continue;
    result[i] = 1;
    victims.push_back(unlink_to_remove(*slot, lives[i].id));
  }
  parts_->deferred.free_or_defer(std::move(victims));
  return result;
}

PinTarget ObjectTable::unlink_to_remove(std::uint32_t slot, const IdBytes& id) {
  const PinTarget victim = parts_->catalog.target(slot);
  parts_->unlink(slot);
  ENTREPOT_SYNC_POINT("delete.unlinked");
  parts_->names.drop_id(id);
  return victim;
}

void ObjectTable::remove_session(std::uint32_t session) {
  const std::vector<std::uint32_t> slots = parts_->sessions.slots_of(session);
  std::vector<PinTarget> victims;
  victims.reserve(slots.size());
  for (const std::uint32_t slot : slots) {
    const IdBytes id = parts_->catalog.directory().at(slot).id;
    victims.push_back(parts_->catalog.target(slot));
    parts_->unlink(slot);
    parts_->names.drop_id(id);
  }
  parts_->manifest.session_removed(session);
  parts_->deferred.free_or_defer(std::move(victims));
  for (const IdBytes& id : parts_->absent.forget_dropped(session))
    parts_->names.drop_id(id);
  parts_->names.drop_session(session);
}

bool ObjectTable::rescan() {
  const bool released = parts_->withheld.release();
  return parts_->deferred.rescan() || released;
}

}  // namespace entrepot
