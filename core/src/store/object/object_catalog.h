// Object catalog: which objects there are. It owns their slots, the index that finds slots by ID, and the numbers of
// objects and bytes, and it keeps each session's list of objects.
//
//   allocate ──publish──▶ in its slot ──add──▶ counted ──insert or replace──▶ found by ID ──unlink──▶ `deleting`
//                                                                                  └──────remove──▶ as its state says
//
// Each step is harmless without the next. A slot that was unlinked or removed still holds the object's fields until it
// is freed. Slot generations come from one counter for the whole store (root.generation_seed), so (ID, generation)
// identifies one version of an object whichever slot holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "shm/directory.h"
#include "shm/index.h"
#include "shm/pins.h"
#include "shm/record_arena.h"
#include "store/session/session_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ObjectCatalog {
 public:
  // All three must outlive the catalog.
  ObjectCatalog(ControlMemory& memory, RecordArena& records, SessionTable& sessions);

  // Reads the slots of an earlier daemon, and starts with an empty index and nothing counted: add() and insert() what
  // is kept. Call once, before anything else.
  [[nodiscard]] Result<DirectoryAdoption> adopt();

  // --- a new object
  [[nodiscard]] Status prepare() { return index_.prepare(); }  // the next insert() succeeds
  [[nodiscard]] Result<std::uint32_t> allocate() { return directory_.allocate(); }
  void abandon(std::uint32_t slot) { directory_.abandon(slot); }
  void publish_sealed(std::uint32_t slot, const SlotFields& fields, MemoryKind kind);  // with a generation of its own
  // With its earlier generation, so that references from then stay valid.
  void publish_spilled(std::uint32_t slot, const SlotFields& fields, std::uint32_t generation);
  void add(std::uint32_t slot);
  [[nodiscard]] Status insert(std::uint32_t slot);
  [[nodiscard]] bool replace(std::uint32_t old_slot, std::uint32_t slot);  // false: the old one was not in the index

  // --- its end
  void unlink(std::uint32_t slot);
  void remove(std::uint32_t slot);  // the caller changed its state before
  void free_record(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes);

  // Returns memory that slots and index no longer need to the system; returns the number of bytes.
  std::uint64_t trim();
  [[nodiscard]] std::uint32_t slot_end() const { return directory_.size(); }  // all slots are below it

  // --- lookups
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const;  // slot of the object, resident or not
  [[nodiscard]] bool is_resident(std::uint32_t slot) const { return directory_.state(slot) == ObjectState::kSealed; }
  [[nodiscard]] PinTarget target(std::uint32_t slot) const { return {slot, directory_.generation(slot)}; }
  [[nodiscard]] Result<RecordView> record(std::uint32_t slot) const;
  [[nodiscard]] std::vector<std::uint32_t> blobs_of(std::uint32_t slot) const;

  [[nodiscard]] const DirectoryWriter& directory() const { return directory_; }
  [[nodiscard]] DirectoryWriter& directory() { return directory_; }  // for states and hints of slots
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }

 private:
  [[nodiscard]] std::uint32_t take_generation();

  Root* root_;
  RecordArena* records_;
  SessionTable* sessions_;
  DirectoryWriter directory_;
  IndexWriter index_;
  std::uint32_t count_ = 0;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace entrepot
