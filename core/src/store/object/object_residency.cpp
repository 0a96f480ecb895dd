#include "store/object/object_residency.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

bool ObjectResidency::is_clean(std::uint32_t slot) const {
  const std::vector<std::uint32_t> blobs = parts_->catalog.blobs_of(slot);
  return !blobs.empty() &&
         std::all_of(blobs.begin(), blobs.end(), [&](auto blob) { return parts_->blobs.copy(blob) != 0; });
}

std::uint64_t ObjectResidency::resident_bytes(std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t blob : parts_->catalog.blobs_of(slot)) {
    if (parts_->blobs.is_resident(blob)) bytes += parts_->blobs.extent_bytes(blob);
  }
  return bytes;
}

// ---- eviction ----

ObjectResidency::Eviction ObjectResidency::evict(std::span<const std::uint32_t> slots) {
  // A blob may leave if it has a copy and none of the objects that refer to it is pinned. One that is being deleted
  // counts as pinned.
  DirectoryWriter& directory = parts_->catalog.directory();
  std::map<std::uint32_t, std::vector<std::uint32_t>> leaving_blobs;  // blob -> slots
  std::set<std::uint32_t> marked;
  std::vector<PinTarget> targets;
  for (const std::uint32_t slot : slots) {
    for (const std::uint32_t blob : parts_->catalog.blobs_of(slot)) {
      if (!parts_->blobs.is_resident(blob) || parts_->blobs.copy(blob) == 0 || leaving_blobs.contains(blob)) continue;
      std::vector<std::uint32_t> referencing = parts_->blobs.referencing_slots(blob);
      if (!std::all_of(referencing.begin(), referencing.end(), [&](auto user) { return directory.is_findable(user); }))
        continue;
      for (const std::uint32_t user : referencing) {
        if (!parts_->catalog.is_resident(user) || !marked.insert(user).second) continue;
        directory.mark_evicting(user);
        targets.push_back(parts_->catalog.target(user));
      }
      leaving_blobs.emplace(blob, std::move(referencing));
    }
  }
  ENTREPOT_SYNC_POINT("evict.marked");
  const std::vector<std::uint8_t> pinned = parts_->pins.scan(targets);
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
      directory.mark_spilled(slot);
      result.evicted.push_back(slot);
    } else {
      directory.mark_sealed(slot);
    }
    ENTREPOT_SYNC_POINT("evict.object");
  }
  for (const auto& [blob, referencing] : leaving_blobs)
    result.bytes += parts_->blobs.evict(blob);
  return result;
}

std::vector<std::uint32_t> ObjectResidency::on_blob_loaded(std::uint32_t blob, const BlobLocation& place) {
  ObjectCatalog& catalog = parts_->catalog;
  parts_->blobs.on_loaded(blob, place);
  std::vector<std::uint32_t> resident;
  for (const std::uint32_t user : parts_->blobs.referencing_slots(blob)) {
    if (catalog.directory().state(user) != ObjectState::kSpilled) continue;
    const std::vector<std::uint32_t> blobs = catalog.blobs_of(user);
    const auto is_resident = [&](std::uint32_t number) { return parts_->blobs.is_resident(number); };
    if (!std::all_of(blobs.begin(), blobs.end(), is_resident)) continue;
    catalog.directory().mark_sealed(user);
    ENTREPOT_SYNC_POINT("load.object");
    resident.push_back(user);
  }
  return resident;
}

// ---- ends ----

void ObjectResidency::mark_lost(std::uint32_t slot, std::string why) {
  const Slot& entry = parts_->catalog.directory().at(slot);
  const IdBytes id = entry.id;
  log_error("object ", to_hex(id), " of ", entry.payload_bytes, " bytes is lost: its copy is damaged");
  parts_->absent.add_lost(id, std::move(why));  // before waiting readers are notified of its end
  parts_->unlink(slot);
  parts_->names.drop_id(id);
  parts_->deferred.free_or_defer({parts_->catalog.target(slot)});
}

bool ObjectResidency::drop(std::uint32_t slot) {
  ObjectCatalog& catalog = parts_->catalog;
  const std::vector<std::uint32_t> blobs = catalog.blobs_of(slot);
  const auto is_its_own = [&](std::uint32_t blob) {  // I/O on a blob counts as a reference
    return parts_->blobs.is_resident(blob) && parts_->blobs.copy(blob) == 0 && parts_->blobs.references(blob) == 1;
  };
  if (!catalog.is_resident(slot) || blobs.empty() || !std::all_of(blobs.begin(), blobs.end(), is_its_own)) return false;

  catalog.directory().mark_evicting(slot);
  ENTREPOT_SYNC_POINT("drop.marked");
  if (parts_->pins.scan(std::vector{catalog.target(slot)})[0] != 0) {
    catalog.directory().mark_sealed(slot);
    return false;
  }
  catalog.directory().mark_dropped(slot);  // from here on it is gone, also for the next daemon
  ENTREPOT_SYNC_POINT("drop.dropped");
  parts_->remove(slot);
  ENTREPOT_SYNC_POINT("drop.unlinked");
  for (const std::uint32_t blob : blobs)
    parts_->blobs.drop_reference(blob, slot);
  const Slot& entry = catalog.directory().at(slot);
  catalog.free_record(slot, entry.record_offset, entry.record_bytes);
  parts_->absent.add_dropped(slot);
  return true;
}

}  // namespace entrepot
