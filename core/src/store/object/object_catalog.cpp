#include "store/object/object_catalog.h"

#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

ObjectCatalog::ObjectCatalog(ControlMemory& memory, RecordArena& records, SessionTable& sessions)
    : root_(&memory.root()), records_(&records), sessions_(&sessions), directory_(memory), index_(memory) {}

Result<DirectoryAdoption> ObjectCatalog::adopt() {
  DirectoryAdoption slots = directory_.adopt();
  RETURN_IF_ERROR(index_.reset(static_cast<std::uint32_t>(slots.sealed.size())));
  return slots;
}

// ---- a new object ----

std::uint32_t ObjectCatalog::take_generation() {
  auto& seed = root_->generation_seed;
  std::uint32_t generation = 0;
  do {
    generation = static_cast<std::uint32_t>(seed.load(std::memory_order_relaxed) + 1);
    seed.store(generation, std::memory_order_relaxed);
  } while (generation == 0 || generation >= kLastGeneration - 1);
  return generation;
}

void ObjectCatalog::publish_sealed(std::uint32_t slot, const SlotFields& fields, MemoryKind kind) {
  directory_.table().set_next_generation(slot, take_generation());
  ENTREPOT_SYNC_POINT("seal.generation");
  directory_.publish_sealed(slot, fields, kind);
  ENTREPOT_SYNC_POINT("seal.published");
}

void ObjectCatalog::publish_spilled(std::uint32_t slot, const SlotFields& fields, std::uint32_t generation) {
  directory_.table().set_next_generation(slot, generation);
  directory_.publish(slot, fields, ObjectState::kSpilled, MemoryKind::kUnknown);
}

void ObjectCatalog::add(std::uint32_t slot) {
  const Slot& entry = directory_.at(slot);
  ++count_;
  payload_bytes_ += entry.payload_bytes;
  sessions_->add_object(entry.session, slot, entry.payload_bytes);
}

Status ObjectCatalog::insert(std::uint32_t slot) { return index_.insert(directory_.at(slot).id, slot); }

bool ObjectCatalog::replace(std::uint32_t old_slot, std::uint32_t slot) {
  return index_.replace(directory_.at(slot).id, old_slot, slot);
}

// ---- its end ----

void ObjectCatalog::unlink(std::uint32_t slot) {
  directory_.mark_deleting(slot);
  ENTREPOT_SYNC_POINT("delete.marked");
  remove(slot);
}

void ObjectCatalog::remove(std::uint32_t slot) {
  const Slot& entry = directory_.at(slot);
  index_.remove(entry.id, slot);  // no effect if it was replaced
  --count_;
  payload_bytes_ -= entry.payload_bytes;
  sessions_->drop_object(entry.session, slot, entry.payload_bytes);
}

std::uint64_t ObjectCatalog::trim() { return directory_.trim() + index_.trim(); }

void ObjectCatalog::free_record(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) {
  const Status freed = records_->free(offset, bytes);
  if (!freed.is_ok()) log_error("record of slot ", slot, ": ", freed.to_string());
}

// ---- lookups ----

std::optional<std::uint32_t> ObjectCatalog::find(const IdBytes& id) const {
  const auto slot = index_.find(id);
  if (!slot || !directory_.is_findable(*slot)) return std::nullopt;
  return slot;
}

Result<RecordView> ObjectCatalog::record(std::uint32_t slot) const {
  const Slot& entry = directory_.at(slot);
  return records_->view(entry.record_offset, entry.record_bytes);
}

std::vector<std::uint32_t> ObjectCatalog::blobs_of(std::uint32_t slot) const {
  std::vector<std::uint32_t> result;
  const Result<RecordView> view = record(slot);
  if (!view.is_ok()) return result;
  result.reserve(view->blobs().size());
  for (const RecordBlob& ref : view->blobs())
    result.push_back(ref.blob);
  return result;
}

}  // namespace entrepot
