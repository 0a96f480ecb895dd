// Segment sizes: how large new segments are, which are kept warm ahead of demand, and which free ones are surplus.
// Decides only: nothing here knows of the segments that exist, except through its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "shm/layout.h"

namespace entrepot {

// Whether a segment of `size` serves a request for `wanted` bytes better than one of `best`: the smallest that suffices
// is best, else the largest.
[[nodiscard]] constexpr bool fits_better(std::uint64_t size, std::uint64_t best, std::uint64_t wanted) {
  return best < wanted ? size > best : size >= wanted && size < best;
}

// Kept warm are a number of small segments and, if the target leaves room for it, one for a large value. Immutable.
class SegmentSizes {
 public:
  // `warm_bytes`: made ahead of demand; unless `with_large`, in small segments only.
  SegmentSizes(std::uint64_t capacity_bytes, std::uint64_t warm_bytes, bool with_large = true);

  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_; }
  [[nodiscard]] std::uint64_t warm_target_bytes() const { return warm_target_; }
  [[nodiscard]] std::uint64_t small_bytes() const { return small_; }
  [[nodiscard]] std::uint64_t large_bytes() const { return large_; }  // 0: none is kept
  [[nodiscard]] std::uint32_t small_count() const { return small_count_; }
  [[nodiscard]] std::uint64_t min_large_bytes() const;  // minimum size of a segment that is kept for one large value
  [[nodiscard]] bool is_large(std::uint64_t bytes) const { return large_ != 0 && bytes >= min_large_bytes(); }

  // --- for a lease of `want` bytes, or of at least `min_length`
  [[nodiscard]] std::uint64_t new_for_lease(std::uint64_t min_length, std::uint64_t want) const;
  // Of a free segment that the lease takes although memory for another one is available.
  [[nodiscard]] std::uint64_t largest_for_lease(std::uint64_t want) const;

  // --- ahead of demand
  enum class Missing : std::uint8_t { kNothing, kSmall, kLarge };
  [[nodiscard]] Missing missing(std::uint32_t free_small, bool has_free_large) const;
  [[nodiscard]] std::uint64_t new_large(std::uint64_t available_bytes) const;

 private:
  // Guarded by: nothing. They never change.
  std::uint64_t capacity_;
  std::uint64_t warm_target_;
  std::uint64_t small_;
  std::uint64_t large_ = 0;
  std::uint32_t small_count_ = 0;
};

struct FreeSegment {
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kUnknown;
  bool for_all = true;  // else for its former writer only, so it is no substitute for a warm one
};

// Of all free segments, those to give back, the largest first: what is beyond the warm target, except what would be
// provisioned again. So what is given back stays with the machine until a request needs it. As long as `recent_bytes` is
// not 0, at least so much beyond the target stays too, in whole segments.
[[nodiscard]] std::vector<FreeSegment> find_surplus(const SegmentSizes& sizes, std::vector<FreeSegment> free_segments,
                                                    std::uint64_t recent_bytes = 0);

}  // namespace entrepot
