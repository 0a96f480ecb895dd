// The record arena: the daemon's allocator over the records region, which it extends page by page as needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/extent_allocator.h"
#include "shm/record.h"

namespace entrepot {

// Guarded by the daemon's thread.
class RecordArena {
 public:
  explicit RecordArena(ControlMemory& memory);  // on adoption: all is free until reserve()d

  // Space with pages behind it, aligned to kRecordAlign. kStoreFull if there is no memory.
  [[nodiscard]] Result<std::uint64_t> allocate(std::uint32_t bytes);
  [[nodiscard]] Status free(std::uint64_t offset, std::uint32_t bytes);
  // On adoption: kCorruptData if it overlaps another record or lies beyond the mark.
  [[nodiscard]] Status reserve(std::uint64_t offset, std::uint32_t bytes);

  // build_record into fresh space; the offset.
  [[nodiscard]] Result<std::uint64_t> write(const RecordParts& parts, std::uint32_t& bytes);

  // Bounds are checked against the mark; the contents by RecordView::parse.
  [[nodiscard]] Result<RecordView> view(std::uint64_t offset, std::uint32_t bytes) const;
  [[nodiscard]] std::span<std::byte> span(std::uint64_t offset, std::uint32_t bytes);

  // What is free now is not allocated until give_back(): somebody may read there. Once at most, after an adoption.
  void withhold();
  void give_back();

  // Gives the pages under large free extents back to the machine (they return by themselves when they are allocated
  // again). Returns the bytes punched.
  [[nodiscard]] Result<std::uint64_t> trim();

  [[nodiscard]] std::uint64_t used_bytes() const { return extents_.used_bytes(); }
  [[nodiscard]] std::uint64_t arena_bytes() const { return extents_.bytes(); }

 private:
  static constexpr std::uint64_t kGrowBytes = 256U << 10;  // at once, where there is so much
  static constexpr std::uint64_t kTrimBytes = 64U << 10;   // a smaller hole is not worth a call

  Region* region_;
  Root* root_;
  ExtentAllocator extents_;                                        // covers [0, record_high_water)
  std::vector<std::pair<std::uint64_t, std::uint64_t>> withheld_;  // offset and length; in use for extents_
  ExtentAllocator holes_;  // in use here = punched by trim(), pages must be ensured again before use
};

// The client's side: the record of a pinned, re-checked slot; kCorruptData if it does not fit. Allocates nothing.
[[nodiscard]] Result<RecordView> read_record(const ControlView& view, const Slot& slot);

}  // namespace entrepot
