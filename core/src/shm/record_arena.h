// Record arena: the daemon's allocator over the records region, which it extends page by page as needed.
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
  explicit RecordArena(ControlMemory& memory);  // on adoption, everything is free until reserve()d

  // Allocates space with pages behind it, aligned to kRecordAlign. kStoreFull if there is no memory.
  [[nodiscard]] Result<std::uint64_t> allocate(std::uint32_t bytes);
  [[nodiscard]] Status free(std::uint64_t offset, std::uint32_t bytes);
  // For adoption: kCorruptData if the range overlaps another record or lies beyond the mark.
  [[nodiscard]] Status reserve(std::uint64_t offset, std::uint32_t bytes);

  // Builds the record in newly allocated space; returns its offset.
  [[nodiscard]] Result<std::uint64_t> write(const RecordParts& parts, std::uint32_t& bytes);

  // Checks the range against the mark; RecordView::parse checks the contents.
  [[nodiscard]] Result<RecordView> view(std::uint64_t offset, std::uint32_t bytes) const;
  [[nodiscard]] std::span<std::byte> span(std::uint64_t offset, std::uint32_t bytes);

  // Withholds all space that is now free until release_withheld(), because readers may still use it. At most once,
  // after an adoption.
  void withhold();
  void release_withheld();

  // Returns the pages under large free extents to the system; they are reserved again on allocation. Returns the number
  // of bytes punched.
  [[nodiscard]] Result<std::uint64_t> trim();

  [[nodiscard]] std::uint64_t used_bytes() const { return extents_.used_bytes(); }
  [[nodiscard]] std::uint64_t arena_bytes() const { return extents_.bytes(); }

 private:
  static constexpr std::uint64_t kGrowBytes = 256U << 10;  // growth step, if there is enough memory
  static constexpr std::uint64_t kTrimBytes = 64U << 10;   // a smaller hole is not worth a system call

  Region* region_;
  Root* root_;
  ExtentAllocator extents_;                                        // covers [0, record_high_water)
  std::vector<std::pair<std::uint64_t, std::uint64_t>> withheld_;  // offset and length; allocated in extents_
  ExtentAllocator holes_;  // allocated here = punched by trim(): reserve the pages before use
};

// The client's side: reads the record of a pinned, rechecked slot; kCorruptData if it is invalid. Does not allocate.
[[nodiscard]] Result<RecordView> read_record(const ControlView& view, const Slot& slot);

}  // namespace entrepot
