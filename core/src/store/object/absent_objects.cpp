#include "store/object/absent_objects.h"

#include "base/text.h"
#include "store/sync_point.h"

namespace entrepot {

AbsentObjects::AbsentObjects(ObjectCatalog& catalog, const SessionTable& sessions)
    : catalog_(&catalog), sessions_(&sessions) {}

void AbsentObjects::add_dropped(std::uint32_t slot) { dropped_[catalog_->directory().at(slot).id] = slot; }

void AbsentObjects::adopt_dropped(std::uint32_t slot) {
  const Slot& entry = catalog_->directory().at(slot);
  const bool is_valid =
      sessions_->is_known(entry.session) && !catalog_->find(entry.id) && dropped_.try_emplace(entry.id, slot).second;
  if (!is_valid) catalog_->directory().free(slot);
}

bool AbsentObjects::forget(const IdBytes& id) {
  const bool was_lost = lost_.erase(id) != 0;
  const auto it = dropped_.find(id);
  if (it == dropped_.end()) return was_lost;
  catalog_->directory().free(it->second);
  ENTREPOT_SYNC_POINT("dropped.freed");
  dropped_.erase(it);
  return true;
}

std::vector<IdBytes> AbsentObjects::forget_dropped(std::uint32_t session) {
  std::vector<IdBytes> forgotten;
  for (auto it = dropped_.begin(); it != dropped_.end();) {
    if (catalog_->directory().at(it->second).session != session) {
      ++it;
      continue;
    }
    catalog_->directory().free(it->second);
    forgotten.push_back(it->first);
    it = dropped_.erase(it);
  }
  return forgotten;
}

LookupOutcome AbsentObjects::lookup(const IdBytes& id) const {
  if (const auto dropped = dropped_.find(id); dropped != dropped_.end()) {
    return {Code::kObjectDropped, 0, 0, false, drop_reason(dropped->second)};
  }
  if (const auto lost = lost_.find(id); lost != lost_.end()) return {Code::kObjectLost, 0, 0, false, lost->second};
  return {Code::kObjectNotFound, 0, 0, false, {}};
}

std::string AbsentObjects::drop_reason(std::uint32_t slot) const {
  const DirectoryWriter& directory = catalog_->directory();
  return concat(
      "memory was short, and recomputing it (", format_seconds(RecomputeCode::seconds(directory.hints(slot).recompute)),
      ", according to its writer) was expected to cost less than writing its ",
      format_bytes(directory.at(slot).payload_bytes), " to disk and reading them back, or writing them failed");
}

}  // namespace entrepot
