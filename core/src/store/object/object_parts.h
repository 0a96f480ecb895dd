// The parts of which the store's objects are made, and what they depend on. ObjectTable, ObjectResidency and
// ObjectRecovery work on them; everything else of the store uses the one that it needs.
//
//   ObjectTable      seals, finds and deletes          ─┐
//   ObjectResidency  evicts, drops, takes in what was   ├─▶  catalog, blobs, manifest, absent, deferred, withheld
//                    loaded                             │
//   ObjectRecovery   adopts                            ─┘
#pragma once

#include <cstdint>
#include <string>

#include "shm/pins.h"
#include "shm/record_arena.h"
#include "spill/backend.h"
#include "store/memory/segment_pool.h"
#include "store/object/absent_objects.h"
#include "store/object/blob_table.h"
#include "store/object/consumer_table.h"
#include "store/object/deferred_frees.h"
#include "store/object/object_catalog.h"
#include "store/object/object_manifest.h"
#include "store/object/withheld_memory.h"
#include "store/session/locality_set_table.h"
#include "store/session/name_table.h"
#include "store/session/session_table.h"
#include "store/types.h"

namespace entrepot {

struct ObjectDeps {  // all must outlive the parts
  ControlMemory& memory;
  const Clock& clock;
  SessionTable& sessions;
  const LocalitySetTable& sets;
  ConsumerTable& consumers;
  NameTable& names;
  SegmentPool& pool;
  RecordArena& records;
  PinScanner& pins;
  SpillBackend* spill = nullptr;     // null: nothing leaves memory
  std::string no_spill_reason = {};  // the reason, if null
};

// Notified when objects are sealed and end; implemented by the pager, which decides about residency.
class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  virtual void object_sealed(std::uint32_t slot) = 0;  // it has blobs, and all are resident
  virtual void object_ended(std::uint32_t slot) = 0;   // unlinked; its slot's fields can still be read
};

// Guarded by the daemon's thread.
struct ObjectParts {
  explicit ObjectParts(const ObjectDeps& deps);
  ObjectParts(const ObjectParts&) = delete;
  ObjectParts& operator=(const ObjectParts&) = delete;

  // Ends an object for everybody but those who pin it: it is in no table any more, and its slot says `deleting`.
  // DeferredFrees then frees it.
  void unlink(std::uint32_t slot);
  void remove(std::uint32_t slot);  // the same for a slot whose state already says that it has ended

  const Clock& clock;
  SessionTable& sessions;
  const LocalitySetTable& sets;
  ConsumerTable& consumers;
  NameTable& names;
  SegmentPool& pool;
  RecordArena& records;
  PinScanner& pins;
  ResidencyListener* listener = nullptr;

  ObjectCatalog catalog;
  BlobTable blobs;
  ObjectManifest manifest;
  AbsentObjects absent;
  DeferredFrees deferred;
  WithheldMemory withheld;

 private:
  void forget(std::uint32_t slot);
};

}  // namespace entrepot
