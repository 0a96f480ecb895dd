// What the spill backend's manifest says about the objects of this store: an object is listed while each of its blobs
// has a copy on disk, so that it survives keeper and daemon.
//
//   not listed ──remember, if all its blobs have copies──▶ listed ──forget──▶ not listed
//
// Whether it is listed is part of its slot, so the next daemon knows. Remembering it again updates names and session.
#pragma once

#include <cstdint>

#include "spill/backend.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
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

 private:
  ObjectCatalog* catalog_;
  const BlobTable* blobs_;
  const SessionTable* sessions_;
  const NameTable* names_;
  SpillBackend* spill_;
};

}  // namespace entrepot
