#include "store/object/object_manifest.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"

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
  object.names = names_->names_of(entry.id, entry.session);
  object.sealed_unix_ns = entry.sealed_unix_ns;
  object.record.assign(reinterpret_cast<const char*>(view->bytes().data()), view->bytes().size());
  for (const RecordBlob& ref : view->blobs())
    object.blobs.push_back({blobs_->key(ref.blob), blobs_->place(ref.blob).length, blobs_->copy(ref.blob)});
  last_record_ = spill_->remember(object);
  catalog_->directory().set_in_manifest(slot, true);
}

void ObjectManifest::forget(std::uint32_t slot) {
  if (spill_ == nullptr) return;
  if (is_listed(slot)) return forget_again(slot);
  names_end(catalog_->directory().at(slot).id);
}

void ObjectManifest::names_end(const IdBytes& id) {
  if (changes_.empty()) return;
  names_->for_each_of(id, [&](std::uint32_t session, std::string_view name) {
    if (const std::uint64_t record = unwritten_name(session, name); record != 0) changes_.add(IdHash()(id), record);
  });
}

void ObjectManifest::forget_again(std::uint32_t slot) {
  if (spill_ == nullptr) return;
  DirectoryWriter& directory = catalog_->directory();
  const Slot& entry = directory.at(slot);
  last_record_ = spill_->forget(entry.id, directory.generation(slot));
  directory.set_in_manifest(slot, false);
  changes_.add(IdHash()(entry.id), last_record_);
  for (const std::string& name : names_->names_of(entry.id, entry.session))
    changes_.add(name_key(entry.session, name), last_record_);
}

// The loser first: after a crash between the two records, the name is lost; it never leads to the former object.
void ObjectManifest::name_moved(std::uint32_t session, std::string_view name, const IdBytes* before,
                                const IdBytes* now) {
  const auto update = [&](const IdBytes* id) {
    const std::optional<std::uint32_t> slot = id == nullptr ? std::nullopt : catalog_->find(*id);
    // Only names in the object's own session are listed.
    if (!slot || !is_listed(*slot) || catalog_->directory().at(*slot).session != session) return false;
    remember(*slot);
    return true;
  };
  const bool was_listed = update(before);
  static_cast<void>(update(now));
  if (was_listed) changes_.add(name_key(session, name), last_record_);
}

void ObjectManifest::session_removed(std::uint32_t session) {
  if (!changes_.empty()) changes_.add(session_key(sessions_->scope(session), sessions_->name(session)), last_record_);
}

std::uint64_t ObjectManifest::unwritten_name(std::uint32_t session, std::string_view name) const {
  if (changes_.empty()) return 0;
  return std::max(changes_.of(name_key(session, name)),
                  unwritten_session(sessions_->scope(session), sessions_->name(session)));
}

std::uint64_t ObjectManifest::unwritten_session(std::string_view scope, std::string_view session) const {
  return changes_.empty() ? 0 : changes_.of(session_key(scope, session));
}

void ObjectManifest::distrust_until(std::uint64_t record) {
  if (spill_ != nullptr) changes_.add_all(record);
}

void ObjectManifest::drop_written() {
  if (!changes_.empty()) changes_.written(spill_->recorded());
}

std::uint64_t ObjectManifest::name_key(std::uint32_t session, std::string_view name) {
  return hash_text(name, session);
}

std::uint64_t ObjectManifest::session_key(std::string_view scope, std::string_view session) {
  return hash_text(session, hash_text(scope));
}

bool ObjectManifest::is_listed(std::uint32_t slot) const { return catalog_->directory().in_manifest(slot); }

}  // namespace entrepot
