// Blob table: contiguous immutable ranges of payload, reference-counted by the objects that share them. The counts are
// derived, and private to the daemon.
//
//   free ──publish──▶ sealed (resident) ──mark_spilled──▶ spilled ──publish_again──▶ sealed
//   free ──publish_spilled (recovered from a manifest)──▶ spilled
//   sealed, spilled ──free──▶ free (generation + 1)
//
// A copy (a location in a spill file) belongs to a blob from set_copy() to drop_copy(), resident or not; only a blob
// that has one can be spilled. The memory location of a spilled blob is meaningless, and a crash may leave it half
// written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "shm/layout.h"

namespace entrepot {

struct BlobLocation {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  // Generation of the segment's entry: its number is reused with another memfd after the segment was dropped, so a
  // reader whose mapping has another generation maps it again.
  std::uint32_t segment_generation = 0;
};

[[nodiscard]] std::uint32_t blob_crc(const Blob& blob, std::uint32_t generation);

struct BlobKey {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const BlobKey&) const = default;
};

struct BlobAdoption {
  std::vector<std::uint32_t> sealed;
  std::vector<std::uint32_t> spilled;
  std::vector<std::uint32_t> damaged;  // wrong checksum: now kLost, not reused until freed
};

// Guarded by the daemon's thread.
class BlobWriter {
 public:
  explicit BlobWriter(ControlMemory& memory);

  [[nodiscard]] BlobAdoption adopt();  // call once, before anything else; counts start at 0

  [[nodiscard]] Result<std::uint32_t> allocate() { return table_.allocate(); }
  void abandon(std::uint32_t blob) { table_.abandon(blob); }
  // Writes the fields, then the word (release). The count starts at 0. Returns the generation.
  std::uint32_t publish(std::uint32_t blob, const BlobLocation& place, MemoryKind kind = MemoryKind::kUnknown);
  void free(std::uint32_t blob);  // requires a count of 0: generation + 1 (or retired)

  // Sets the location of the copy on disk, which is never 0.
  void set_copy(std::uint32_t blob, std::uint64_t location) { table_.at(blob).spill_location = location; }
  void drop_copy(std::uint32_t blob) { table_.at(blob).spill_location = 0; }
  [[nodiscard]] std::uint64_t copy(std::uint32_t blob) const { return table_.at(blob).spill_location; }  // 0: none
  [[nodiscard]] BlobKey key(std::uint32_t blob) const { return {blob, generation(blob)}; }
  void mark_spilled(std::uint32_t blob);  // requires a copy; afterwards the caller returns its range to the pool
  void publish_again(std::uint32_t blob, const BlobLocation& place, MemoryKind kind);  // keeps generation and length
  std::uint32_t publish_spilled(std::uint32_t blob, std::uint64_t length, std::uint64_t location);

  void add_reference(std::uint32_t blob);
  [[nodiscard]] std::uint32_t drop_reference(std::uint32_t blob);  // returns the references left
  [[nodiscard]] std::uint32_t references(std::uint32_t blob) const;

  [[nodiscard]] bool is_sealed(std::uint32_t blob, std::uint32_t generation) const;
  [[nodiscard]] bool exists(std::uint32_t blob, std::uint32_t generation) const;  // sealed or spilled
  [[nodiscard]] bool is_resident(std::uint32_t blob) const { return state(blob) == BlobState::kSealed; }
  [[nodiscard]] BlobState state(std::uint32_t blob) const {
    return static_cast<BlobState>(Word::state(table_.word(blob)));
  }
  [[nodiscard]] BlobLocation place(std::uint32_t blob) const;
  [[nodiscard]] std::uint32_t generation(std::uint32_t blob) const { return Word::generation(table_.word(blob)); }
  [[nodiscard]] const Blob& at(std::uint32_t blob) const { return table_.at(blob); }
  [[nodiscard]] std::uint32_t next_generation(std::uint32_t blob) const { return table_.next_generation(blob); }
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }

  EntryTable<Blob>& table() { return table_; }

 private:
  EntryTable<Blob> table_;
  std::vector<std::uint32_t> references_;  // by blob
};

// The client's side. Safe from any thread.
class BlobReader {
 public:
  explicit BlobReader(const ControlView& view);
  // Returns the blob's location; nullopt if number or generation do not match, or it is not resident. Stable while an
  // object that references it is pinned.
  [[nodiscard]] std::optional<BlobLocation> resolve(std::uint32_t blob, std::uint32_t generation) const;

 private:
  const Root* root_;
  const Blob* blobs_;
  std::uint32_t capacity_;
};

}  // namespace entrepot
