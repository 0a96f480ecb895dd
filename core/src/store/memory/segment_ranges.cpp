#include "store/memory/segment_ranges.h"

#include <algorithm>
#include <iterator>

#include "base/align.h"
#include "os/memfd.h"
#include "shm/leases.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMinPunch = 64U << 10;  // smaller holes are not worth a system call
static_assert(kLeaseGranule % kReturnGranule == 0, "a whole lease can be given back");

}  // namespace

std::uint64_t blob_extent_bytes(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = os::page_bytes();
  const bool own_pages = length >= kOwnPagesBytes && offset % page == 0;
  return round_up(length, own_pages ? page : kBlobAlign);
}

std::uint64_t blob_granule(std::uint64_t length) { return length >= kOwnPagesBytes ? os::page_bytes() : kBlobAlign; }

SegmentRanges::~SegmentRanges() { totals_->leased_bytes -= leased_bytes_; }

// ---- leases ----

std::optional<std::uint64_t> SegmentRanges::lease(std::uint64_t length, std::uint64_t granule) {
  const std::optional<std::uint64_t> offset = extents_.allocate(length, granule);
  if (offset) add_leased(*offset, length);
  return offset;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> SegmentRanges::lease_up_to(std::uint64_t length,
                                                                                  std::uint64_t min_length,
                                                                                  std::uint64_t granule) {
  const auto range = extents_.allocate_up_to(length, min_length, granule);
  if (range) add_leased(range->first, range->second);
  return range;
}

Status SegmentRanges::lease_exactly(std::uint64_t offset, std::uint64_t length) {
  RETURN_IF_ERROR(extents_.reserve(offset, length));
  add_leased(offset, length);
  return Status::ok();
}

void SegmentRanges::lease_all_within(const SegmentTable::Leases& bounds) {
  RangeList ranges;
  extents_.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t first = std::max(offset, bounds.first);
    const std::uint64_t end = std::min(offset + length, bounds.end);
    if (first < end) ranges.emplace_back(first, end - first);
  });
  for (const auto& [offset, length] : ranges) {
    if (extents_.reserve(offset, length).is_ok()) add_leased(offset, length);
  }
}

bool SegmentRanges::is_leased(std::uint64_t offset, std::uint64_t length) const {
  auto it = leased_.upper_bound(offset);
  if (it == leased_.begin()) return false;
  --it;
  return offset - it->first < it->second && length <= it->second - (offset - it->first);
}

Status SegmentRanges::unlease(std::uint64_t offset, std::uint64_t length) {
  remove_leased(offset, length);
  return extents_.free(offset, length);
}

Status SegmentRanges::unlease_all() {
  const auto ranges = std::exchange(leased_, {});
  totals_->leased_bytes -= std::exchange(leased_bytes_, 0);
  Status result;
  for (const auto& [offset, length] : ranges) {
    if (Status status = extents_.free(offset, length); !status.is_ok()) result = std::move(status);
  }
  return result;
}

SegmentTable::Leases SegmentRanges::lease_bounds() const {
  if (leased_.empty()) return {};
  return {leased_.begin()->first, leased_.rbegin()->first + leased_.rbegin()->second};
}

void SegmentRanges::add_leased(std::uint64_t offset, std::uint64_t length) {
  leased_bytes_ += length;
  totals_->leased_bytes += length;
  auto next = leased_.lower_bound(offset);
  if (next != leased_.end() && next->first == offset + length) {
    length += next->second;
    next = leased_.erase(next);
  }
  if (next != leased_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  leased_.emplace(offset, length);
}

void SegmentRanges::remove_leased(std::uint64_t offset, std::uint64_t length) {
  auto it = std::prev(leased_.upper_bound(offset));
  const std::uint64_t start = it->first;
  const std::uint64_t end = start + it->second;
  leased_.erase(it);
  if (start < offset) leased_.emplace(start, offset - start);
  if (offset + length < end) leased_.emplace(offset + length, end - offset - length);
  leased_bytes_ -= length;
  totals_->leased_bytes -= length;
}

// ---- blobs ----

void SegmentRanges::seal(std::uint64_t offset, std::uint64_t length) {
  remove_leased(offset, length);
  ++blobs_;
  totals_->blob_bytes += length;
}

std::optional<std::uint64_t> SegmentRanges::allocate_blob(std::uint64_t length, std::uint64_t align) {
  const std::optional<std::uint64_t> offset = extents_.allocate(length, align);
  if (!offset) return std::nullopt;
  ++blobs_;
  totals_->blob_bytes += length;
  return offset;
}

Status SegmentRanges::adopt_blob(std::uint64_t offset, std::uint64_t length) {
  RETURN_IF_ERROR(extents_.reserve(offset, length));
  ++blobs_;
  totals_->blob_bytes += length;
  return Status::ok();
}

Status SegmentRanges::free_blob(std::uint64_t offset, std::uint64_t length) {
  --blobs_;
  totals_->blob_bytes -= length;
  return extents_.free(offset, length);
}

// ---- retired ----

RangeList SegmentRanges::free_pages() const {
  const std::uint64_t page = os::page_bytes();
  RangeList result;
  extents_.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t first = round_up(offset, page);
    const std::uint64_t end = (offset + length) / page * page;
    if (end > first && end - first >= kMinPunch) result.emplace_back(first, end - first);
  });
  return result;
}

Status SegmentRanges::retire(std::uint64_t offset, std::uint64_t length) {
  RETURN_IF_ERROR(extents_.reserve(offset, length));
  retired_bytes_ += length;
  return Status::ok();
}

}  // namespace entrepot
