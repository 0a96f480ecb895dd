#include "shm/extent_allocator.h"

#include <iterator>

#include "base/align.h"
#include "base/text.h"

namespace entrepot {

namespace {

// Limit on extents skipped because they are long enough but misaligned; after that, one that fits in any case is taken.
constexpr int kMaxCandidates = 16;

// Aligned start of `bytes` within the extent, if they fit.
std::optional<std::uint64_t> aligned_offset_in(std::uint64_t offset, std::uint64_t length, std::uint64_t bytes,
                                               std::uint64_t align) {
  const std::uint64_t start = round_up(offset, align);
  if (start - offset > length || length - (start - offset) < bytes) return std::nullopt;
  return start;
}

}  // namespace

void ExtentAllocator::insert_extent(std::uint64_t offset, std::uint64_t length) {
  by_offset_.emplace(offset, length);
  by_length_.emplace(length, offset);
}

void ExtentAllocator::erase_extent(ByOffset::iterator extent) {
  by_length_.erase({extent->second, extent->first});
  by_offset_.erase(extent);
}

// Removes [offset, offset + length) from a free extent that contains it.
void ExtentAllocator::take(ByOffset::iterator extent, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t first = extent->first;
  const std::uint64_t end = extent->first + extent->second;
  erase_extent(extent);
  if (offset > first) insert_extent(first, offset - first);
  if (offset + length < end) insert_extent(offset + length, end - offset - length);
  free_bytes_ -= length;
}

std::optional<std::uint64_t> ExtentAllocator::allocate(std::uint64_t bytes, std::uint64_t align) {
  if (bytes == 0 || bytes > free_bytes_) return std::nullopt;
  int candidates = 0;
  for (auto at = by_length_.lower_bound({bytes, 0}); at != by_length_.end(); ++at) {
    if (const auto start = aligned_offset_in(at->second, at->first, bytes, align)) {
      take(by_offset_.find(at->second), *start, bytes);
      return start;
    }
    if (++candidates == kMaxCandidates) {
      if (bytes > UINT64_MAX - align) return std::nullopt;
      const auto roomy = by_length_.lower_bound({bytes + align - 1, 0});
      if (roomy != by_length_.end()) at = std::prev(roomy);  // the next one fits wherever it starts
      // Otherwise only shorter extents are left: examine all of them rather than refuse a request that would fit.
    }
  }
  return std::nullopt;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> ExtentAllocator::allocate_up_to(std::uint64_t bytes,
                                                                                       std::uint64_t min_bytes,
                                                                                       std::uint64_t align) {
  if (min_bytes == 0 || bytes < min_bytes) return std::nullopt;
  bytes = round_up(bytes, align);
  min_bytes = round_up(min_bytes, align);
  if (const auto start = allocate(bytes, align)) return std::pair{*start, bytes};
  int candidates = 0;
  for (auto at = by_length_.rbegin(); at != by_length_.rend() && at->first >= min_bytes; ++at) {
    const std::uint64_t start = round_up(at->second, align);
    const std::uint64_t skipped = start - at->second;
    if (skipped < at->first) {
      const std::uint64_t length = (at->first - skipped) & ~(align - 1);
      if (length >= min_bytes) {
        take(by_offset_.find(at->second), start, length);
        return std::pair{start, length};
      }
    }
    if (++candidates == kMaxCandidates) break;
  }
  return std::nullopt;
}

Status ExtentAllocator::free(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  if (offset > bytes_ || bytes > bytes_ - offset) {
    return Status(Code::kInternal, concat("cannot free ", bytes, " bytes at ", offset, " of a range of ", bytes_));
  }
  auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first < offset + bytes) {
    return Status(Code::kInternal, concat("cannot free ", bytes, " bytes at ", offset, ": ", next->second, " bytes at ",
                                          next->first, " are already free"));
  }
  std::uint64_t first = offset;
  std::uint64_t end = offset + bytes;
  if (next != by_offset_.begin()) {
    const auto previous = std::prev(next);
    const std::uint64_t previous_end = previous->first + previous->second;
    if (previous_end > offset) {
      return Status(Code::kInternal, concat("cannot free ", bytes, " bytes at ", offset, ": ", previous->second,
                                            " bytes at ", previous->first, " are already free"));
    }
    if (previous_end == offset) {
      first = previous->first;
      erase_extent(previous);
    }
  }
  if (next != by_offset_.end() && next->first == end) {
    end += next->second;
    erase_extent(next);
  }
  insert_extent(first, end - first);
  free_bytes_ += bytes;
  return Status::ok();
}

Status ExtentAllocator::reserve(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  if (!is_free(offset, bytes)) {
    return Status(Code::kCorruptData, concat(bytes, " bytes at ", offset, " of a range of ", bytes_,
                                             " are not free: they have two owners or are out of range"));
  }
  take(std::prev(by_offset_.upper_bound(offset)), offset, bytes);
  return Status::ok();
}

void ExtentAllocator::grow(std::uint64_t new_bytes) {
  if (new_bytes <= bytes_) return;
  std::uint64_t first = bytes_;
  const std::uint64_t added = new_bytes - bytes_;
  if (!by_offset_.empty()) {
    const auto last = std::prev(by_offset_.end());
    if (last->first + last->second == bytes_) {
      first = last->first;
      erase_extent(last);
    }
  }
  insert_extent(first, new_bytes - first);
  bytes_ = new_bytes;
  free_bytes_ += added;
}

bool ExtentAllocator::is_free(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset) return false;
  if (bytes == 0) return true;
  const auto after = by_offset_.upper_bound(offset);
  if (after == by_offset_.begin()) return false;
  const auto extent = std::prev(after);
  return extent->first + extent->second >= offset + bytes;
}

}  // namespace entrepot
