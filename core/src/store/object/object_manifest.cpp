#include "store/object/object_manifest.h"

#include <algorithm>

namespace entrepot {

ObjectManifest::ObjectManifest(ObjectCatalog& catalog, const BlobTable& blobs, const SessionTable& sessions,
                               const NameTable& names, SpillBackend* spill)
    : catalog_(&catalog), blobs_(&blobs), sessions_(&sessions), names_(&names), spill_(spill) {}

void ObjectManifest::remember(std::uint32_t slot) {
  if (spill_ == nullptr) return;
  const Slot& entry = catalog_->directory().at(slot);
  const Result<RecordView> view = catalog_->record(slot);
  if (!view.is_ok() || view->blobs().empty() || !sessions_->is_live(entry.session)) return;
  const auto has_copy = [&](const RecordBlob& ref) { return blobs_->copy(ref.blob) != 0; };
  if (!std::all_of(view->blobs().begin(), view->blobs().end(), has_copy)) return;
  SpilledObject object;
  object.id = entry.id;
  object.generation = catalog_->directory().generation(slot);
  object.scope = sessions_->scope(entry.session);
  object.session = sessions_->name(entry.session);
  object.ttl_seconds = sessions_->at(entry.session).ttl_seconds;
  object.names = names_->names_of(entry.id);
  object.sealed_unix_ns = entry.sealed_unix_ns;
  object.record.assign(reinterpret_cast<const char*>(view->bytes().data()), view->bytes().size());
  for (const RecordBlob& ref : view->blobs())
    object.blobs.push_back({blobs_->key(ref.blob), blobs_->place(ref.blob).length, blobs_->copy(ref.blob)});
  spill_->remember(object);
  catalog_->directory().set_in_manifest(slot, true);
}

void ObjectManifest::forget(std::uint32_t slot) {
  DirectoryWriter& directory = catalog_->directory();
  if (spill_ == nullptr || !directory.in_manifest(slot)) return;
  spill_->forget(directory.at(slot).id, directory.generation(slot));
  directory.set_in_manifest(slot, false);
}

}  // namespace entrepot
