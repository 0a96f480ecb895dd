#include "store/memory/segment_sizes.h"

#include <algorithm>

#include "base/align.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxSmallSegmentBytes = 64U << 20;
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

SegmentSizes::SegmentSizes(std::uint64_t capacity_bytes, std::uint64_t warm_bytes, bool with_large)
    : capacity_(capacity_bytes),
      warm_target_(std::min(warm_bytes, capacity_bytes)),
      small_(std::clamp(capacity_bytes / 16 / kSegmentAlign * kSegmentAlign, kSegmentAlign, kMaxSmallSegmentBytes)) {
  const std::uint64_t large_limit = warm_target_ / 3 * 2 / kSegmentAlign * kSegmentAlign;  // for one value of any size
  large_ = with_large && large_limit > small_ ? large_limit : 0;
  small_count_ = static_cast<std::uint32_t>((warm_target_ - large_ + small_ - 1) / small_);
}

// Records may have taken some of the capacity intended for the large segment.
std::uint64_t SegmentSizes::min_large_bytes() const {
  return large_ == 0 ? 0 : std::max(large_ - small_, small_ + kSegmentAlign);
}

std::uint64_t SegmentSizes::new_for_lease(std::uint64_t min_length, std::uint64_t want) const {
  return want <= small_ ? std::max(small_, round_up(min_length, kSegmentAlign)) : round_up(want, kSegmentAlign);
}

std::uint64_t SegmentSizes::largest_for_lease(std::uint64_t want) const {
  return want <= small_ ? 2 * small_ : UINT64_MAX;
}

SegmentSizes::Missing SegmentSizes::missing(std::uint32_t free_small, bool has_free_large) const {
  if (free_small < small_count_) return Missing::kSmall;
  return large_ != 0 && !has_free_large ? Missing::kLarge : Missing::kNothing;
}

std::uint64_t SegmentSizes::new_large(std::uint64_t available_bytes) const {
  return std::clamp(available_bytes / kSegmentAlign * kSegmentAlign, min_large_bytes(), large_);
}

std::vector<FreeSegment> find_surplus(const SegmentSizes& sizes, std::vector<FreeSegment> free_segments,
                                      std::uint64_t recent_bytes) {
  std::uint64_t free_bytes = 0;
  for (const FreeSegment& free : free_segments)
    free_bytes += free.bytes;
  if (free_bytes <= sizes.warm_target_bytes()) return {};
  // Segments to keep come first: the warmest, and of those the smallest.
  std::sort(free_segments.begin(), free_segments.end(), [](const FreeSegment& a, const FreeSegment& b) {
    const std::uint32_t warmth_a = warmth(a.kind);
    const std::uint32_t warmth_b = warmth(b.kind);
    return warmth_a != warmth_b ? warmth_a > warmth_b : a.bytes < b.bytes;
  });
  const std::uint64_t small = sizes.small_bytes();
  const std::uint64_t large = sizes.large_bytes();
  std::uint32_t larges_to_keep = large == 0 ? 0 : 1;
  std::uint32_t smalls_to_keep = sizes.small_count();
  std::erase_if(free_segments, [&](const FreeSegment& free) {
    const bool is_large = sizes.is_large(free.bytes);
    const bool fits =
        is_large ? free.bytes <= large + large / kLargerShare : free.bytes >= small && free.bytes <= 2 * small;
    std::uint32_t& to_keep = is_large ? larges_to_keep : smalls_to_keep;
    if (!fits || to_keep == 0 || !free.for_all) return false;
    --to_keep;
    return true;
  });
  std::stable_sort(free_segments.begin(), free_segments.end(),
                   [](const FreeSegment& a, const FreeSegment& b) { return a.bytes > b.bytes; });
  const std::uint64_t keep_bytes = sizes.warm_target_bytes() + recent_bytes;
  std::erase_if(free_segments, [&](const FreeSegment& free) {
    if (free_bytes <= keep_bytes || (recent_bytes != 0 && free_bytes - free.bytes < keep_bytes)) return true;
    free_bytes -= free.bytes;
    return false;
  });
  return free_segments;
}

}  // namespace entrepot
