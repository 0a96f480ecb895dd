// Recovery of objects that an earlier daemon or store left. In control memory, slot words and checksums are
// authoritative and everything else is rebuilt; in the manifest, whatever has a complete copy is an object again.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "shm/record.h"
#include "spill/backend.h"
#include "store/object/object_parts.h"

namespace entrepot {

struct ObjectAdoption {
  std::uint32_t lost = 0;              // once sealed, no longer complete
  std::uint32_t orphaned_on_disk = 0;  // of those: intact on disk, but there is no spill backend to read them
  std::uint32_t adopted = 0;
  std::uint32_t deferred = 0;  // being deleted, possibly still pinned
};

// Guarded by the daemon's thread.
class ObjectRecovery {
 public:
  explicit ObjectRecovery(ObjectParts& parts) : parts_(&parts) {}  // which must outlive this

  // Rebuilds all derived state; call once, before any object is sealed, also for a fresh store. Sessions, pool
  // (adopt_begin) and pins must be adopted before; names come after.
  [[nodiscard]] Result<ObjectAdoption> adopt();

  // Adds an object listed in a manifest to a fresh store; `session`: index of a live one. Objects that share a copy
  // share a blob: `adopted_blobs` has those of the objects added so far.
  using RecoveredBlobs = std::unordered_map<SpillLocation, RecordBlob>;
  [[nodiscard]] Status adopt_spilled(const SpilledObject& object, std::uint32_t session, RecoveredBlobs& adopted_blobs);

 private:
  [[nodiscard]] Status adopt_object(std::uint32_t slot, bool sealed);
  [[nodiscard]] bool is_complete(std::uint32_t slot, const Result<RecordView>& view, bool sealed) const;
  void enter(std::uint32_t slot);
  [[nodiscard]] Result<BlobRef> retain_blob(const SpilledBlob& copy, RecoveredBlobs& adopted_blobs);
  [[nodiscard]] Status publish_spilled(const SpilledObject& object, const RecordView& view, std::uint32_t session,
                                       std::span<const RecordBlob> blobs);

  ObjectParts* parts_;
};

}  // namespace entrepot
