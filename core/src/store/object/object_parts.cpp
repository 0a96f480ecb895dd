#include "store/object/object_parts.h"

namespace entrepot {

ObjectParts::ObjectParts(const ObjectDeps& deps)
    : clock(deps.clock),
      sessions(deps.sessions),
      sets(deps.sets),
      consumers(deps.consumers),
      names(deps.names),
      pool(deps.pool),
      records(deps.records),
      pins(deps.pins),
      catalog(deps.memory, deps.records, deps.sessions),
      blobs(deps.memory, deps.pool, deps.spill, deps.no_spill_reason),
      manifest(catalog, blobs, deps.sessions, deps.names, deps.spill),
      absent(catalog, deps.sessions),
      deferred(catalog, blobs, deps.pins),
      withheld(catalog, deps.pins, deps.records, deps.pool) {}

void ObjectParts::unlink(std::uint32_t slot) {
  catalog.unlink(slot);
  forget(slot);
}

void ObjectParts::remove(std::uint32_t slot) {
  catalog.remove(slot);
  forget(slot);
}

void ObjectParts::forget(std::uint32_t slot) {
  manifest.forget(slot);
  if (listener != nullptr) listener->object_ended(slot);
  consumers.forget(slot);
}

}  // namespace entrepot
