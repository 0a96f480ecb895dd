#include "plasma/arena_objects.h"

#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kDigestBytes = 8;

ObjectDescription describe(const IdBytes& id, const Object& object) {
  return {id,
          object.data_bytes,
          object.metadata_bytes,
          static_cast<std::uint32_t>(object.holders.size()),
          object.created_unix_s,
          object.construct_s,
          object.digest};
}

}  // namespace

bool ArenaObjects::make_room(std::uint64_t bytes, ClientKey client, bool may_evict) {
  const ObjectTable::Room room = table_->make_room(bytes, client, may_evict);
  evict(room.victims);
  return room.fits;
}

std::uint64_t ArenaObjects::evict(std::span<const IdBytes> ids) {
  std::uint64_t bytes = 0;
  std::vector<Doomed> deleted;
  for (const IdBytes& id : ids) {
    const Object& object = *table_->find(id);
    bytes += object.bytes();
    if (strict_ && object.is_plasma) deleted.push_back({id, object.generation});
    table_->erase(id);
    notifications_->deleted(id);
  }
  if (!deleted.empty()) delete_from_store(std::move(deleted));
  return bytes;
}

void ArenaObjects::delete_from_store(std::vector<Doomed> objects) {
  const auto report = [](const Status& removed, std::size_t count) {
    if (!removed.is_ok()) log_warning("cannot delete ", count_of(count, "object"), ": ", removed.to_string());
  };
  const Status removed = arena_->remove(objects, Patience::kBrief, false).status();
  if (removed.code() != Code::kTimeout) return report(removed, objects.size());
  worker_->run(Lane::kAnswers, [report, objects = std::move(objects), arena = arena_]() -> StoreWorker::Completion {
    const Status later = arena->remove(objects, Patience::kUntilAnswered, true).status();
    return [report, later, count = objects.size()] { report(later, count); };
  });
}

Object* ArenaObjects::usable(const IdBytes& id) {
  Object* const object = table_->find(id);
  if (object == nullptr || !object->is_sealed) return nullptr;
  if (!object->holders.empty()) return object;
  const auto generation = arena_->generation(id);
  bool is_here = generation && *generation == object->generation;
  if (is_here && object->is_in_place) {
    const Result<StoredObject> stored = arena_->find(id);
    std::optional<Extent> extent;
    if (stored.is_ok() && stored->object) extent = arena_->in_place(*stored);
    is_here = extent && extent->segment == object->extent.segment && extent->offset == object->extent.offset;
    if (is_here) object->extent = *std::move(extent);
  }
  if (is_here && object->extent.memory == nullptr) {
    if (auto extent = arena_->lease_at_hand(0)) object->extent = *std::move(extent);
    is_here = object->extent.memory != nullptr;
  }
  if (is_here) return object;
  table_->erase(id);  // deleted, replaced, or moved by the store, or without bytes and no place for them at hand
  return nullptr;
}

bool ArenaObjects::is_present(const IdBytes& id) {
  const Object* const object = table_->find(id);
  if (object != nullptr && object->is_sealed && !object->holders.empty()) return true;
  // While it is created here, or copied from the store, others may have sealed it there.
  return arena_->exists(id);
}

void ArenaObjects::hold(ClientChannel& client, const IdBytes& id, Object& object) {
  table_->hold(object, client.key());
  client.held.insert(id);
}

bool ArenaObjects::release(ClientChannel& client, const IdBytes& id) {
  if (!client.held.contains(id)) return false;
  Object& object = *table_->find(id);
  if (!object.is_sealed) return false;  // it goes with its creator, which holds it until then
  client.held.erase(id);
  if (!table_->release(id, object, client.key())) return false;
  unheld(id, object);
  return true;
}

void ArenaObjects::unheld(const IdBytes& id, Object& object) {
  if (!object.is_sealed || !object.holders.empty()) return;
  if (object.is_deletion_wanted) {
    const Doomed doomed{id, object.generation};  // if others deleted it, and put another, that one stays
    table_->erase(id);
    notifications_->deleted(id);
    return delete_from_store({doomed});
  }
  // The store can neither spill a copy nor give its memory to others, and has the original.
  if (!object.is_in_place && object.bytes() > 0) return table_->erase(id);
  object.extent.pin.reset();
  if (object.bytes() == 0) object.extent = {};  // the least that can be leased is more than it needs
}

void ArenaObjects::drop_if_unneeded(const IdBytes& id) {
  if (Object* const object = table_->find(id)) unheld(id, *object);
}

void ArenaObjects::send_segment(ClientChannel& client, const Object& object) {
  client.send_segment(object.extent.segment, arena_->descriptor(object.extent));
}

Status ArenaObjects::seal(const IdBytes& id, Object& object, Published published, std::string digest) {
  object.generation = published.generation;
  RETURN_IF_ERROR(published.status);
  object.is_in_place = published.is_in_place;
  if (published.is_in_place) object.extent.pin = std::move(published.pin);
  if (digest.empty()) digest.assign(kDigestBytes, '\0');  // an empty one would mean that it is not sealed
  object.digest = std::move(digest);
  object.construct_s =
      static_cast<std::int64_t>(os::unix_ns() / kNsPerSecond) - static_cast<std::int64_t>(object.created_unix_s);
  table_->seal(id, object);
  notifications_->sealed(describe(id, object));
  unheld(id, object);
  return Status::ok();
}

ArenaObjects::Removal ArenaObjects::remove(const IdBytes& id) {
  Object* const object = table_->find(id);
  if (object != nullptr) {
    if (!object->is_sealed || !object->holders.empty()) {
      object->is_deletion_wanted = true;
      return {object->is_sealed ? Error::kObjectInUse : Error::kObjectNotSealed, {}};
    }
    table_->erase(id);
    notifications_->deleted(id);
  }
  return {Error::kOk, {id, arena_->generation(id)}};
}

void ArenaObjects::client_gone(ClientChannel& client) {
  for (const IdBytes& id : std::exchange(client.held, {})) {
    Object& object = *table_->find(id);
    if (!object.is_sealed) {
      table_->erase(id);  // its creator is gone
    } else if (table_->release(id, object, client.key())) {
      unheld(id, object);
    }
  }
  table_->forget_client(client.key());
}

std::vector<ObjectDescription> ArenaObjects::describe_all() const {
  std::vector<ObjectDescription> objects;
  for (const auto& [id, object] : table_->all())
    objects.push_back(describe(id, object));
  return objects;
}

std::string ArenaObjects::debug_text() const {
  std::size_t unsealed = 0;
  std::size_t held = 0;
  for (const auto& [id, object] : table_->all()) {
    unsealed += object.is_sealed ? 0 : 1;
    held += object.holders.empty() ? 0 : 1;
  }
  return concat("entrepot-plasma-store ", ENTREPOT_VERSION, "\ncapacity: ", table_->capacity_bytes(),
                " bytes\nin use: ", table_->used_bytes(), " bytes\nobjects: ", table_->all().size(), "\nheld: ", held,
                "\nunsealed: ", unsealed, "\n");
}

}  // namespace entrepot::plasma
