// The life cycle of objects: seal, find, delete, and the frees that wait for the last pin.
//
//   seal:    blobs -> record -> slot's fields -> slot's word -> index -> name      each step is harmless without the
//   next replace: the new slot first, then the index entry swapped, then the old slot `deleting` delete:  word
//   `deleting` -> index -> names -> one scan of all pin tables -> free, or deferred until the last pin goes free: slot
//   first (generation + 1), then its blobs' counts, then its record
//
// A blob lives while a record lists it, deferred ones included. Generations of slots come from one counter of the whole
// store (root.generation_seed), so that (ID, generation) names one life of one ID, wherever its slot lies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "shm/blobs.h"
#include "shm/directory.h"
#include "shm/index.h"
#include "shm/pins.h"
#include "shm/record_arena.h"
#include "store/names.h"
#include "store/segment_pool.h"
#include "store/sessions.h"
#include "store/types.h"

namespace entrepot {

struct ObjectParts {  // what the life cycle works on; all outlive it
  ControlMemory& memory;
  const Clock& clock;
  SessionTable& sessions;
  NameTable& names;
  SegmentPool& pool;
  RecordArena& records;
  PinScanner& pins;
};

struct ObjectAdoption {
  std::uint32_t lost = 0;  // sealed once, and not whole any more
  std::uint32_t adopted = 0;
  std::uint32_t deferred = 0;  // being deleted, still pinned perhaps
};

// Guarded by the daemon's thread.
class ObjectTable {
 public:
  explicit ObjectTable(const ObjectParts& parts);

  // Publishes one object, or changes nothing. Sealing what is sealed already, from the same ranges and with the same
  // metadata, is success: a client may repeat the request after a reconnect.
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec);

  [[nodiscard]] LookupOutcome lookup(const IdBytes& id) const;
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;  // slot of the sealed object

  // Unlinks at once; one scan of the pins for all. result[i]: it was there.
  std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  void remove_session(std::uint32_t session);  // its objects and names

  // Frees what nobody pins any more. Returns whether anything was freed.
  bool rescan();
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }

  // Everything is derived anew. Sessions, pool (adopt_begin) and pins have adopted before; names come after.
  [[nodiscard]] Result<ObjectAdoption> adopt();

  [[nodiscard]] const DirectoryWriter& directory() const { return directory_; }
  [[nodiscard]] const BlobWriter& blobs() const { return blobs_; }
  [[nodiscard]] Result<RecordView> record(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t count() const { return sealed_; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t deferred_bytes() const;

 private:
  struct Placed {  // a checked seal on its way
    std::uint32_t session = 0;
    std::uint64_t payload_bytes = 0;
    std::optional<std::uint32_t> replaced;  // slot
  };

  [[nodiscard]] Status check(std::uint32_t client, const SealSpec& spec, Placed& placed) const;
  [[nodiscard]] Status check_blobs(std::uint32_t client, const SealSpec& spec) const;
  [[nodiscard]] Status check_buffers(const SealSpec& spec, Placed& placed) const;
  [[nodiscard]] bool is_same(std::uint32_t slot, const SealSpec& spec) const;
  SealOutcome publish(std::uint32_t client, const SealSpec& spec, const Placed& placed);
  [[nodiscard]] Result<std::vector<std::uint32_t>> publish_blobs(const SealSpec& spec);
  [[nodiscard]] Result<std::uint64_t> write_record(const SealSpec& spec, const std::vector<std::uint32_t>& fresh,
                                                   std::vector<BlobRef>& refs, std::uint32_t& bytes);
  void undo_blobs(const std::vector<std::uint32_t>& blobs);
  [[nodiscard]] std::uint32_t take_generation();
  void unlink(std::uint32_t slot);  // sealed -> deleting, out of the index and its session
  void collect(std::vector<PinTarget> victims);
  void free_object(std::uint32_t slot);
  [[nodiscard]] bool adopt_object(std::uint32_t slot, bool sealed);

  ObjectParts parts_;
  DirectoryWriter directory_;
  BlobWriter blobs_;
  IndexWriter index_;
  std::vector<PinTarget> deferred_;
  std::unordered_set<IdBytes, IdHash> lost_;  // found damaged on adoption, and neither sealed anew nor deleted since
  std::uint32_t sealed_ = 0;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace entrepot
