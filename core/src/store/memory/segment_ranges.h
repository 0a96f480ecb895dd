// Segment ranges: what each range of one segment is used for.
//
//            lease()                 seal()
//   free ──────────────▶ leased ──────────────▶ sealed (part of a blob)
//    │ ◀──── unlease() ───┘                        │
//    │ ◀────────────── free_blob() ────────────────┘
//    ├──allocate_blob(): filled by the daemon──▶ sealed
//    └──retire(): its pages were returned to the machine──▶ retired; usable again only in a new segment
//
// All of it is in the daemon's private memory. For the next daemon, the bounds of what is leased are also kept in the
// segment table: see LiveSegments::record_leases().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/extent_allocator.h"
#include "shm/segment_table.h"

namespace entrepot {

inline constexpr std::uint64_t kLeaseGranule = 64U << 10;  // leases start and end on multiples of it

// Extent that a blob occupies: whole pages for large blobs, so that no page holds bytes of two owners.
[[nodiscard]] std::uint64_t blob_extent_bytes(std::uint64_t offset, std::uint64_t length);
// Where an extent of that length may begin, so that it fits into the hole that another of its length has left.
[[nodiscard]] std::uint64_t blob_granule(std::uint64_t length);

using RangeList = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // offset, length

// Sums over all segments. Guarded by the daemon's thread.
struct RangeTotals {
  std::uint64_t leased_bytes = 0;
  std::uint64_t blob_bytes = 0;
};

// Guarded by the daemon's thread.
class SegmentRanges {
 public:
  // One free range. `totals` must outlive it.
  SegmentRanges(std::uint64_t bytes, RangeTotals& totals) : totals_(&totals), extents_(bytes) {}
  SegmentRanges(const SegmentRanges&) = delete;  // it is counted in the totals
  SegmentRanges& operator=(const SegmentRanges&) = delete;
  ~SegmentRanges();

  // --- leases
  // Returns the offset, or none if no free range is large enough.
  [[nodiscard]] std::optional<std::uint64_t> lease(std::uint64_t length, std::uint64_t granule = kLeaseGranule);
  // Returns as much of the largest free range as possible: offset and length.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> lease_up_to(
      std::uint64_t length, std::uint64_t min_length, std::uint64_t granule = kLeaseGranule);
  [[nodiscard]] Status lease_exactly(std::uint64_t offset, std::uint64_t length);  // kCorruptData unless it is free
  void lease_all_within(const SegmentTable::Leases& bounds);                       // what is free there
  [[nodiscard]] bool is_leased(std::uint64_t offset, std::uint64_t length) const;  // the whole range
  [[nodiscard]] Status unlease(std::uint64_t offset, std::uint64_t length);        // requires is_leased()
  [[nodiscard]] Status unlease_all();
  [[nodiscard]] SegmentTable::Leases lease_bounds() const;  // of all that is leased; empty if nothing is

  // --- blobs
  void seal(std::uint64_t offset, std::uint64_t length);  // a blob's extent, out of a lease: requires is_leased()
  [[nodiscard]] std::optional<std::uint64_t> allocate_blob(std::uint64_t length, std::uint64_t align);
  [[nodiscard]] Status adopt_blob(std::uint64_t offset, std::uint64_t length);  // kCorruptData unless it is free
  [[nodiscard]] Status free_blob(std::uint64_t offset, std::uint64_t length);

  // --- retired
  [[nodiscard]] RangeList free_pages() const;  // free ranges in whole pages, without those too small to be worth it
  [[nodiscard]] Status retire(std::uint64_t offset, std::uint64_t length);  // kCorruptData unless it is free

  [[nodiscard]] std::uint64_t bytes() const { return extents_.bytes(); }
  [[nodiscard]] std::uint64_t free_bytes() const { return extents_.free_bytes(); }
  [[nodiscard]] std::uint64_t largest_free() const { return extents_.largest_free(); }
  [[nodiscard]] std::uint64_t leased_bytes() const { return leased_bytes_; }
  [[nodiscard]] std::uint64_t retired_bytes() const { return retired_bytes_; }
  [[nodiscard]] std::uint64_t committed_bytes() const { return bytes() - retired_bytes_; }
  [[nodiscard]] bool has_blobs() const { return blobs_ != 0; }
  [[nodiscard]] bool is_empty() const { return blobs_ == 0 && leased_.empty(); }

 private:
  void add_leased(std::uint64_t offset, std::uint64_t length);
  void remove_leased(std::uint64_t offset, std::uint64_t length);

  // Guarded by the daemon's thread.
  RangeTotals* totals_;
  ExtentAllocator extents_;                        // free, or in use: leased, sealed or retired
  std::map<std::uint64_t, std::uint64_t> leased_;  // offset -> length, disjoint, not adjacent
  std::uint64_t leased_bytes_ = 0;
  std::uint64_t retired_bytes_ = 0;
  std::uint32_t blobs_ = 0;
};

}  // namespace entrepot
