#include "plasma/object_table.h"

#include <algorithm>
#include <utility>

namespace entrepot::plasma {
namespace {

constexpr std::uint64_t kEvictedShare = 5;  // a fifth of the arena goes at a time
constexpr std::uint64_t kPercent = 100;
constexpr std::uint64_t kMaxQuotaPercent = 70;  // of all clients with a quota together

}  // namespace

ObjectPlace Object::place() const {
  return {extent.segment, extent.segment_bytes, extent.offset, data_bytes, metadata_bytes};
}

Object* ObjectTable::find(const IdBytes& id) {
  const auto match = objects_.find(id);
  return match == objects_.end() ? nullptr : &match->second;
}

Object& ObjectTable::add(const IdBytes& id, Object object) {
  Object& added = objects_.insert_or_assign(id, std::move(object)).first->second;
  used_bytes_ += added.bytes();
  if (Quota* const quota = quota_of(added.creator)) quota->used_bytes += added.bytes();
  if (added.is_sealed && added.holders.empty()) enter_order(id, added);
  return added;
}

void ObjectTable::seal(const IdBytes& id, Object& object) {
  object.is_sealed = true;
  if (object.holders.empty()) enter_order(id, object);
}

void ObjectTable::hold(Object& object, ClientKey client) {
  object.holders.insert(client);
  leave_order(object);
}

bool ObjectTable::release(const IdBytes& id, Object& object, ClientKey client) {
  if (object.holders.erase(client) == 0) return false;
  if (object.is_sealed && object.holders.empty()) enter_order(id, object);
  return true;
}

void ObjectTable::erase(const IdBytes& id) {
  const auto match = objects_.find(id);
  if (match == objects_.end()) return;
  Object& object = match->second;
  leave_order(object);
  used_bytes_ -= object.bytes();
  if (Quota* const quota = quota_of(object.creator)) quota->used_bytes -= object.bytes();
  objects_.erase(match);
}

void ObjectTable::refresh(const IdBytes& id) {
  Object* const object = find(id);
  if (object != nullptr && object->position) order_.splice(order_.end(), order_, *object->position);
}

ObjectTable::Room ObjectTable::make_room(std::uint64_t bytes, ClientKey client, bool may_evict) const {
  Room room;
  std::unordered_set<IdBytes, IdHash> chosen;
  std::uint64_t freed = 0;
  // Takes unheld objects, of one client or of all, until they have `enough` bytes.
  const auto choose = [&](std::uint64_t enough, ClientKey creator) {
    std::uint64_t chosen_bytes = 0;
    for (auto it = order_.begin(); it != order_.end() && chosen_bytes < enough; ++it) {
      const Object& object = objects_.at(*it);
      if ((creator != 0 && object.creator != creator) || !chosen.insert(*it).second) continue;
      room.victims.push_back(*it);
      chosen_bytes += object.bytes();
    }
    freed += chosen_bytes;
    return chosen_bytes;
  };
  if (const auto quota = quotas_.find(client); quota != quotas_.end()) {
    const auto [limit, used] = quota->second;
    if (bytes > limit) return room;
    const std::uint64_t excess = used + bytes > limit ? used + bytes - limit : 0;
    if (excess > 0 && (!may_evict || choose(excess, client) < excess)) return room;
  }
  const std::uint64_t used = used_bytes_ - freed;
  if (bytes > capacity_bytes_) return room;
  const std::uint64_t excess = used + bytes > capacity_bytes_ ? used + bytes - capacity_bytes_ : 0;
  if (excess > 0 && (!may_evict || choose(std::max(excess, capacity_bytes_ / kEvictedShare), 0) < excess)) return room;
  room.fits = true;
  return room;
}

std::vector<IdBytes> ObjectTable::oldest(std::uint64_t bytes) const {
  std::vector<IdBytes> victims;
  std::uint64_t chosen_bytes = 0;
  for (auto it = order_.begin(); it != order_.end() && chosen_bytes < bytes; ++it) {
    victims.push_back(*it);
    chosen_bytes += objects_.at(*it).bytes();
  }
  return victims;
}

bool ObjectTable::set_quota(ClientKey client, std::uint64_t bytes) {
  const std::uint64_t most = capacity_bytes_ / kPercent * kMaxQuotaPercent;
  if (quotas_.contains(client) || bytes > most || quota_bytes_ > most - bytes) return false;
  Quota& quota = quotas_[client];
  quota.limit_bytes = bytes;
  for (const auto& [id, object] : objects_) {
    if (object.creator == client) quota.used_bytes += object.bytes();
  }
  quota_bytes_ += bytes;
  return true;
}

void ObjectTable::forget_client(ClientKey client) {
  const auto quota = quotas_.find(client);
  if (quota == quotas_.end()) return;
  quota_bytes_ -= quota->second.limit_bytes;
  quotas_.erase(quota);
}

void ObjectTable::enter_order(const IdBytes& id, Object& object) {
  if (!object.position) object.position = order_.insert(order_.end(), id);
}

void ObjectTable::leave_order(Object& object) {
  if (object.position) order_.erase(*std::exchange(object.position, std::nullopt));
}

ObjectTable::Quota* ObjectTable::quota_of(ClientKey client) {
  const auto match = quotas_.find(client);
  return match == quotas_.end() ? nullptr : &match->second;
}

}  // namespace entrepot::plasma
