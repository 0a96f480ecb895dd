// Dropping of recomputable objects, and the markers that remain of them.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "store/object/object_table.h"
#include "store/sync_point.h"

namespace entrepot {

bool ObjectTable::drop(std::uint32_t slot) {
  const std::vector<std::uint32_t> blobs = blobs_of(slot);
  const auto is_its_own = [&](std::uint32_t blob) {  // I/O on a blob counts as a reference
    return blobs_.is_resident(blob) && blobs_.copy(blob) == 0 && blobs_.references(blob) == 1;
  };
  if (!is_resident(slot) || blobs.empty() || !std::all_of(blobs.begin(), blobs.end(), is_its_own)) return false;

  const PinTarget target{slot, directory_.generation(slot)};
  directory_.mark_evicting(slot);
  ENTREPOT_SYNC_POINT("drop.marked");
  if (deps_.pins.scan(std::vector{target})[0] != 0) {
    directory_.mark_sealed(slot);
    return false;
  }
  directory_.mark_dropped(slot);  // from here on it is gone, also for the next daemon
  ENTREPOT_SYNC_POINT("drop.dropped");
  const Slot& entry = directory_.at(slot);
  index_.remove(entry.id, slot);
  --sealed_;
  payload_bytes_ -= entry.payload_bytes;
  deps_.sessions.drop_object(entry.session, slot, entry.payload_bytes);
  if (listener_ != nullptr) listener_->object_ended(slot);
  deps_.consumptions.forget(slot);
  ENTREPOT_SYNC_POINT("drop.unlinked");
  for (const std::uint32_t blob : blobs)
    drop_slot_reference(blob, slot);
  const Status freed = deps_.records.free(entry.record_offset, entry.record_bytes);
  if (!freed.is_ok()) log_error("record of slot ", slot, ": ", freed.to_string());
  dropped_[entry.id] = slot;
  return true;
}

void ObjectTable::erase_drop_marker(const IdBytes& id) {
  const auto it = dropped_.find(id);
  if (it == dropped_.end()) return;
  directory_.free(it->second);
  ENTREPOT_SYNC_POINT("dropped.freed");
  dropped_.erase(it);
}

void ObjectTable::erase_drop_markers_of(std::uint32_t session) {
  for (auto it = dropped_.begin(); it != dropped_.end();) {
    if (directory_.at(it->second).session != session) {
      ++it;
      continue;
    }
    directory_.free(it->second);
    deps_.names.drop_id(it->first);
    it = dropped_.erase(it);
  }
}

// Adopts a marker left by an earlier daemon. Call after the sealed objects: one of them may have replaced it.
void ObjectTable::adopt_dropped(std::uint32_t slot) {
  const Slot& entry = directory_.at(slot);
  const bool is_valid =
      deps_.sessions.is_known(entry.session) && !find(entry.id) && dropped_.try_emplace(entry.id, slot).second;
  if (!is_valid) directory_.free(slot);
}

std::string ObjectTable::drop_reason(std::uint32_t slot) const {
  const Slot& entry = directory_.at(slot);
  return concat("memory was short, and recomputing it (",
                format_seconds(RecomputeCode::seconds(directory_.hints(slot).recompute)),
                ", according to its writer) was expected to cost less than writing its ",
                format_bytes(entry.payload_bytes), " to disk and reading them back, or writing them failed");
}

}  // namespace entrepot
