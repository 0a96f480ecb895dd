// Surplus: which free segments beyond the warm target to give back, a few at a time.
//
// Keeps what top_up() would otherwise provision again: one segment for a large value, and the small ones. So what is
// given back stays with the machine until a request needs it.
#include <algorithm>

#include "store/memory/segment_pool.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kLargerShare = 4;  // the segment for a large value may exceed the wanted size by a fourth

// Ranks memory kinds by how expensive they are to make.
std::uint32_t warmth(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHugePages:
      return 3;
    case MemoryKind::kSmallPages:
      return 2;
    case MemoryKind::kUnknown:
      return 1;
    case MemoryKind::kCold:
      break;
  }
  return 0;
}

}  // namespace

std::vector<std::uint32_t> SegmentPool::surplus() const {
  std::vector<std::uint32_t> surplus_segments;
  std::uint64_t free_bytes = 0;
  for (const auto& [segment, entry] : infos_) {
    if (!is_free(segment)) continue;
    surplus_segments.push_back(segment);
    free_bytes += entry->extents.bytes();
  }
  if (free_bytes <= warm_target_) return {};
  // Segments to keep come first: the warmest, and of those the smallest.
  std::sort(surplus_segments.begin(), surplus_segments.end(), [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t warmth_a = warmth(kind(a));
    const std::uint32_t warmth_b = warmth(kind(b));
    return warmth_a != warmth_b ? warmth_a > warmth_b : bytes(a) < bytes(b);
  });
  const std::uint64_t min_large = min_large_bytes();
  std::uint32_t larges_to_keep = large_ == 0 ? 0 : 1;
  std::uint32_t smalls_to_keep = small_count_;
  std::erase_if(surplus_segments, [&](std::uint32_t segment) {
    const std::uint64_t size = bytes(segment);
    const bool is_large = large_ != 0 && size >= min_large;
    const bool fits = is_large ? size <= large_ + large_ / kLargerShare : size >= small_ && size <= 2 * small_;
    std::uint32_t& to_keep = is_large ? larges_to_keep : smalls_to_keep;
    if (!fits || to_keep == 0) return false;
    --to_keep;
    return true;
  });
  std::stable_sort(surplus_segments.begin(), surplus_segments.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return bytes(a) > bytes(b); });
  const auto enough = std::find_if(surplus_segments.begin(), surplus_segments.end(), [&](std::uint32_t segment) {
    if (free_bytes <= warm_target_) return true;
    free_bytes -= bytes(segment);
    return false;
  });
  surplus_segments.erase(enough, surplus_segments.end());
  return surplus_segments;
}

bool SegmentPool::release_surplus(std::uint64_t max_bytes) {
  std::uint64_t dropped = 0;
  for (const std::uint32_t segment : surplus()) {
    const std::uint64_t size = bytes(segment);
    if (dropped != 0 && dropped + size > max_bytes) return true;
    dropped += size;
    drop(segment);
  }
  return false;
}

}  // namespace entrepot
