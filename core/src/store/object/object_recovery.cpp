#include "store/object/object_recovery.h"

#include <utility>

#include "base/text.h"
#include "os/log.h"

namespace entrepot {

// ---- from control memory ----

Result<ObjectAdoption> ObjectRecovery::adopt() {
  ObjectAdoption result;
  ObjectCatalog& catalog = parts_->catalog;
  ASSIGN_OR_RETURN(DirectoryAdoption slots, catalog.adopt());
  const BlobAdoption blobs = parts_->blobs.adopt();
  for (const std::uint32_t slot : slots.deleting) {
    parts_->manifest.forget_again(slot);
    if (adopt_object(slot, false).is_ok()) {
      parts_->deferred.defer(slot);
      ++result.deferred;
    } else {
      slots.damaged.push_back(slot);
    }
  }
  for (const std::uint32_t slot : slots.sealed) {
    const Status adopted = adopt_object(slot, true);
    if (adopted.is_ok()) {
      ++result.adopted;
      continue;
    }
    const Slot& entry = catalog.directory().at(slot);
    log_error("object ", to_hex(entry.id), " of ", entry.payload_bytes, " bytes is lost: ", adopted.message());
    parts_->absent.add_lost(entry.id, adopted.message());
    if (adopted.code() == Code::kStoreUnavailable) ++result.orphaned_on_disk;
    slots.damaged.push_back(slot);
    ++result.lost;
  }
  for (const std::uint32_t slot : slots.dropped)
    parts_->absent.adopt_dropped(slot);
  for (const std::uint32_t slot : slots.damaged) {
    parts_->manifest.forget(slot);
    catalog.directory().mark_lost(slot);
    parts_->deferred.defer(slot);
  }
  parts_->blobs.free_unreferenced(blobs);
  parts_->withheld.withhold(slots.damaged);
  return result;
}

// Counts references to the object's blobs and reserves its record. Claims nothing if any part is incomplete; the error
// then tells readers why the object is lost.
Status ObjectRecovery::adopt_object(std::uint32_t slot, bool sealed) {
  DirectoryWriter& directory = parts_->catalog.directory();
  const Slot& entry = directory.at(slot);
  const Result<RecordView> view = parts_->catalog.record(slot);
  if (!is_complete(slot, view, sealed) || !parts_->records.reserve(entry.record_offset, entry.record_bytes).is_ok()) {
    return Status(Code::kObjectLost, "its control memory was damaged");
  }
  RecordReferences references(parts_->blobs, slot);
  bool resident = true;
  for (const RecordBlob& ref : view->blobs()) {
    const Status status = parts_->blobs.references(ref.blob) == 0 ? parts_->blobs.claim(ref.blob) : Status();
    if (!status.is_ok()) {
      parts_->catalog.free_record(slot, entry.record_offset, entry.record_bytes);
      return status;
    }
    references.add(ref.blob);
    resident = resident && parts_->blobs.is_resident(ref.blob);
  }
  references.commit();
  if (!sealed) return Status::ok();
  // A crash may have left a transition half done; the blobs' states decide.
  if (resident && !parts_->catalog.is_resident(slot)) directory.mark_sealed(slot);
  if (!resident && directory.state(slot) != ObjectState::kSpilled) directory.mark_spilled(slot);
  enter(slot);
  return Status::ok();
}

bool ObjectRecovery::is_complete(std::uint32_t slot, const Result<RecordView>& view, bool sealed) const {
  if (!view.is_ok() || !view->check_crc().is_ok()) return false;
  if (sealed && !parts_->sessions.is_known(parts_->catalog.directory().at(slot).session)) return false;
  for (const RecordBlob& ref : view->blobs()) {
    if (!parts_->blobs.exists(ref.blob, ref.generation)) return false;
  }
  return true;
}

// Makes the object findable. An interrupted replacement leaves two sealed slots with one ID: the later generation wins,
// and the other is deleted.
void ObjectRecovery::enter(std::uint32_t slot) {
  ObjectCatalog& catalog = parts_->catalog;
  DirectoryWriter& directory = catalog.directory();
  const IdBytes id = directory.at(slot).id;
  const std::optional<std::uint32_t> other = catalog.find(id);
  if (!other) {
    const Status indexed = catalog.insert(slot);
    if (indexed.is_ok()) return catalog.add(slot);
    log_error("object ", to_hex(id), ": ", indexed.to_string());
    directory.mark_deleting(slot);
    return parts_->deferred.defer(slot);
  }
  if (static_cast<std::int32_t>(directory.generation(slot) - directory.generation(*other)) <= 0) {
    parts_->manifest.forget_again(slot);
    directory.mark_deleting(slot);
    return parts_->deferred.defer(slot);
  }
  if (!catalog.replace(*other, slot)) return;
  parts_->unlink(*other);
  parts_->deferred.defer(*other);
  catalog.add(slot);
}

// ---- from a manifest ----

Status ObjectRecovery::adopt_spilled(const SpilledObject& object, std::uint32_t session,
                                     RecoveredBlobs& adopted_blobs) {
  const auto bytes = std::as_bytes(std::span(object.record.data(), object.record.size()));
  ASSIGN_OR_RETURN(const RecordView view, RecordView::parse(bytes));
  RETURN_IF_ERROR(view.check_crc());
  if (view.blobs().size() != object.blobs.size() || object.blobs.empty()) {
    return Status(Code::kCorruptData, concat("the manifest lists ", object.blobs.size(), " copies for object ",
                                             to_hex(object.id), ", but its record lists ", view.blobs().size()));
  }
  if (parts_->catalog.find(object.id)) {
    return Status(Code::kObjectExists, concat("object ", to_hex(object.id), " already exists"));
  }
  std::vector<BlobRef> retained;  // until the slot refers to them
  std::vector<RecordBlob> blobs;  // the same
  retained.reserve(object.blobs.size());
  for (const SpilledBlob& copy : object.blobs) {
    ASSIGN_OR_RETURN(BlobRef blob, retain_blob(copy, adopted_blobs));
    blobs.push_back(parts_->blobs.ref(blob.blob()));
    retained.push_back(std::move(blob));
  }
  return publish_spilled(object, view, session, blobs);
}

Result<BlobRef> ObjectRecovery::retain_blob(const SpilledBlob& copy, RecoveredBlobs& adopted_blobs) {
  auto it = adopted_blobs.find(copy.location);
  if (it == adopted_blobs.end() || !parts_->blobs.exists(it->second.blob, it->second.generation)) {
    ASSIGN_OR_RETURN(const RecordBlob published, parts_->blobs.publish_copy(copy));
    it = adopted_blobs.insert_or_assign(copy.location, published).first;
  }
  return parts_->blobs.retain(it->second.blob);
}

// `blobs`: this store's, in the order of the record's.
Status ObjectRecovery::publish_spilled(const SpilledObject& object, const RecordView& view, std::uint32_t session,
                                       std::span<const RecordBlob> blobs) {
  ObjectCatalog& catalog = parts_->catalog;
  std::unordered_map<std::uint32_t, RecordBlob> numbers;  // old -> new
  for (std::size_t i = 0; i < blobs.size(); ++i)
    numbers[view.blobs()[i].blob] = blobs[i];
  std::vector<BufferRef> buffers(view.buffers().begin(), view.buffers().end());
  SlotFields fields;
  for (BufferRef& buffer : buffers) {
    fields.payload_bytes += buffer.length;
    if (buffer.blob == kInlineBlob) continue;
    const RecordBlob& renumbered = numbers[buffer.blob];
    buffer.blob = renumbered.blob;
    buffer.generation = renumbered.generation;
  }
  const std::string_view payload(reinterpret_cast<const char*>(view.payload().data()), view.payload().size());
  fields.id = object.id;
  fields.session = session;
  fields.sealed_unix_ns = object.sealed_unix_ns;
  ASSIGN_OR_RETURN(const std::uint32_t slot, catalog.allocate());
  const Result<std::uint64_t> record =
      parts_->records.write({buffers, blobs, view.tree(), payload}, fields.record_bytes);
  if (!record.is_ok()) {
    catalog.abandon(slot);
    return record.status();
  }
  fields.record_offset = *record;
  catalog.publish_spilled(slot, fields, object.generation);
  for (const RecordBlob& ref : blobs)
    parts_->blobs.add_reference(ref.blob, slot);
  catalog.add(slot);
  return catalog.insert(slot);
}

}  // namespace entrepot
