// The entries of this store's objects in the spill backend's manifest: an object is listed while each of its blobs
// has a copy on disk, so that it survives keeper and daemon.
//
//   not listed ──remember, if all its blobs have copies──▶ listed ──forget──▶ not listed
//
// Whether it is listed is part of its slot, so the next daemon knows. Remembering it again updates names and session.
//
// The backend writes the manifest in the background. What was taken back from it (a name, a whole object) is still on
// disk until then, and a store that adopts the folder would find it: unwritten() says up to which record a request has
// to wait before it may tell its client that the name or the ID now leads elsewhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "spill/backend.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/object/unwritten_changes.h"
#include "store/session/name_table.h"
#include "store/session/session_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ObjectManifest {
 public:
  // `spill` null: nothing is ever listed. All others must outlive this.
  ObjectManifest(ObjectCatalog& catalog, const BlobTable& blobs, const SessionTable& sessions, const NameTable& names,
                 SpillBackend* spill);

  void remember(std::uint32_t slot);  // no effect unless all its blobs have copies
  void forget(std::uint32_t slot);    // before its copies are released
  // The same for an object that an earlier daemon ended: whether its record was written is not known.
  void forget_again(std::uint32_t slot);
  // The name was bound to `before` (if not null) and is bound to `now` (if not null).
  void name_moved(std::uint32_t session, std::string_view name, const IdBytes* before, const IdBytes* now);
  // All names of an object that is not listed end; on disk, they may still be another one's.
  void names_end(const IdBytes& id);
  // The session is removed, and everything in it. The next one of its name has another number.
  void session_removed(std::uint32_t session);
  // Until that record is written, the disk may contradict the store about any name and ID.
  void distrust_until(std::uint64_t record);

  // The record that must be written before the disk no longer contradicts what the store says about it; 0: none.
  [[nodiscard]] std::uint64_t unwritten_name(std::uint32_t session, std::string_view name) const;
  [[nodiscard]] std::uint64_t unwritten_session(std::string_view scope, std::string_view session) const;
  [[nodiscard]] std::uint64_t unwritten(const IdBytes& id) const {
    return changes_.empty() ? 0 : changes_.of(IdHash()(id));
  }
  [[nodiscard]] std::uint64_t written() const { return spill_ == nullptr ? 0 : spill_->recorded(); }
  void drop_written();  // call now and then

 private:
  [[nodiscard]] static std::uint64_t name_key(std::uint32_t session, std::string_view name);
  [[nodiscard]] static std::uint64_t session_key(std::string_view scope, std::string_view session);
  [[nodiscard]] bool is_listed(std::uint32_t slot) const;

  ObjectCatalog* catalog_;
  const BlobTable* blobs_;
  const SessionTable* sessions_;
  const NameTable* names_;
  SpillBackend* spill_;
  UnwrittenChanges changes_;
  std::uint64_t last_record_ = 0;
};

}  // namespace entrepot
