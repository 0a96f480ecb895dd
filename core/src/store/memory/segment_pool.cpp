#include "store/memory/segment_pool.h"

#include <algorithm>

#include "os/log.h"
#include "os/memfd.h"
#include "shm/leases.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxSmallSegmentBytes = 64U << 20;
static_assert(kLeaseGranule % kReturnGranule == 0, "a whole lease can be given back");

}  // namespace

std::uint64_t blob_extent_bytes(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = os::page_bytes();
  const bool own_pages = length >= kOwnPagesBytes && offset % page == 0;
  return round_up(length, own_pages ? page : kBlobAlign);
}

SegmentPool::SegmentPool(ControlMemory& memory, RecordArena& records, MemorySource& source, MemoryBudget& budget,
                         const StoreOptions& options)
    : options_(options), records_(&records), budget_(&budget), source_(&source), table_(memory) {
  small_ =
      std::clamp(options.capacity_bytes / 16 / kSegmentAlign * kSegmentAlign, kSegmentAlign, kMaxSmallSegmentBytes);
  warm_target_ = std::min(options.warm_bytes, options.capacity_bytes);
  const std::uint64_t large_limit = warm_target_ / 3 * 2 / kSegmentAlign * kSegmentAlign;  // for one value of any size
  large_ = large_limit > small_ ? large_limit : 0;
  small_count_ = static_cast<std::uint32_t>((warm_target_ - large_ + small_ - 1) / small_);
  warm_done_ = large_ == 0 && small_count_ == 0;
}

bool SegmentPool::is_live(std::uint32_t segment) const {
  return infos_.contains(segment) && table_.state(segment) != SegmentState::kProvisioning;
}

bool SegmentPool::is_free(std::uint32_t segment) const {
  return table_.state(segment) == SegmentState::kFree && !info(segment).reserved && !info(segment).withheld;
}

bool SegmentPool::is_writer(std::uint32_t segment, std::uint32_t client) const {
  return has_writer(table_.state(segment)) && table_.writer(segment).client == client &&
         table_.writer(segment).token != 0;
}

// Whether it may write there without access to anyone else's data: it is the writer, or was the last one before
// unmapping it.
bool SegmentPool::may_write_again(std::uint32_t segment, const SegmentWriterRef& client) const {
  const SegmentState state = table_.state(segment);
  if (state != SegmentState::kLeased && state != SegmentState::kReturned) return false;
  const SegmentWriterRef writer = table_.writer(segment);
  return writer.client == client.client && writer.token == client.token && writer.token != 0;
}

// ---- leases ----

Result<std::optional<LeaseGrant>> SegmentPool::lease(const SegmentWriterRef& client, std::uint64_t min_bytes,
                                                     std::uint64_t want_bytes, LeaseWait& wait) {
  if (min_bytes > options_.capacity_bytes) {
    return Status(
        Code::kStoreFull,
        concat("an object of ", format_bytes(min_bytes), " (", min_bytes, " bytes) is larger than the whole store of ",
               format_bytes(options_.capacity_bytes), ": start the daemon with a larger --size, or put it in parts"));
  }
  const std::uint64_t min_length = round_up(std::max<std::uint64_t>(min_bytes, 1), kLeaseGranule);
  const std::uint64_t want = round_up(
      std::clamp<std::uint64_t>(want_bytes, min_length, std::max(min_length, options_.capacity_bytes)), kLeaseGranule);
  if (wait.segment != kNoSegment) {
    if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<LeaseGrant>();
    info(wait.segment).reserved = false;
    const std::uint32_t segment = std::exchange(wait.segment, kNoSegment);
    if (info(segment).extents.bytes() >= min_length) return std::optional(lease_segment(client, segment, want));
  }
  if (auto grant_result =
          lease_from_own_segments(client, std::max(min_length, want / 4 / kLeaseGranule * kLeaseGranule), want)) {
    return grant_result;
  }
  const bool is_small = want <= small_;
  if (auto grant_result = lease_free_segment(client, want, want, is_small ? 2 * small_ : UINT64_MAX))
    return grant_result;

  // No free segment of the wanted size: make one if there is room, otherwise accept a smaller one that exists.
  const std::uint64_t min_segment = round_up(min_length, kSegmentAlign);
  std::uint64_t size = is_small ? std::max(small_, min_segment) : round_up(want, kSegmentAlign);
  if (available_bytes() < size) {
    if (auto grant_result = lease_free_segment(client, min_length, want, UINT64_MAX)) return grant_result;
    if (auto grant_result = lease_from_own_segments(client, min_length, want)) return grant_result;
    const std::uint64_t preferred_size = std::min(size, std::max(min_segment, small_));
    if (available_bytes() < min_segment && !reclaim(preferred_size) && !reclaim(min_segment)) {
      return std::optional<LeaseGrant>();
    }
    size = std::max(min_segment, std::min(size, available_bytes() / kSegmentAlign * kSegmentAlign));
  }
  ASSIGN_OR_RETURN(wait.segment, start_segment(size, true));
  if (wait.segment == kNoSegment) return lease(client, min_bytes, want_bytes, wait);  // now for less memory, or none
  info(wait.segment).reserved = true;
  if (table_.state(wait.segment) == SegmentState::kProvisioning) return std::optional<LeaseGrant>();
  return lease(client, min_bytes, want_bytes, wait);  // the source answered at once
}

std::optional<LeaseGrant> SegmentPool::lease_from_own_segments(const SegmentWriterRef& client, std::uint64_t min_length,
                                                               std::uint64_t want) {
  std::uint32_t best = kNoSegment;
  for (const auto& [segment, entry] : infos_) {
    if (entry->withheld || !may_write_again(segment, client)) continue;
    if (const auto offset = entry->extents.allocate(want, kLeaseGranule))
      return grant_in_own_segment(client, segment, *offset, want);
    if (entry->extents.largest_free() < min_length) continue;
    if (best == kNoSegment || entry->extents.largest_free() > info(best).extents.largest_free()) best = segment;
  }
  if (best == kNoSegment) return std::nullopt;
  const auto range = info(best).extents.allocate_up_to(want, min_length, kLeaseGranule);
  if (!range) return std::nullopt;
  return grant_in_own_segment(client, best, range->first, range->second);
}

LeaseGrant SegmentPool::grant_in_own_segment(const SegmentWriterRef& client, std::uint32_t segment,
                                             std::uint64_t offset, std::uint64_t length) {
  if (table_.state(segment) == SegmentState::kReturned) {  // it had unmapped it, so it gets the descriptor again
    table_.lease(segment, client);
    info(segment).descriptor_sent = false;
  }
  add_leased(info(segment), offset, length);
  store_lease_bounds(segment);
  return grant(segment, offset, length);
}

std::optional<LeaseGrant> SegmentPool::lease_free_segment(const SegmentWriterRef& client, std::uint64_t min_length,
                                                          std::uint64_t want, std::uint64_t largest) {
  std::uint32_t best = kNoSegment;  // the smallest that holds `want`, else the largest
  for (const auto& [segment, entry] : infos_) {
    const std::uint64_t size = entry->extents.bytes();
    if (!is_free(segment) || size < min_length || size > largest) continue;
    if (best == kNoSegment) {
      best = segment;
      continue;
    }
    const std::uint64_t best_size = info(best).extents.bytes();
    const bool better = best_size < want ? size > best_size : size >= want && size < best_size;
    if (better) best = segment;
  }
  if (best == kNoSegment) return std::nullopt;
  return lease_segment(client, best, want);
}

LeaseGrant SegmentPool::lease_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t want) {
  table_.lease(segment, client);
  ++segments_taken_;
  ENTREPOT_SYNC_POINT("lease.recorded");
  SegmentInfo& entry = info(segment);
  entry.descriptor_sent = false;
  const std::uint64_t length = std::min(want, entry.extents.bytes());
  const auto offset = entry.extents.allocate(length, kLeaseGranule);
  add_leased(entry, offset.value_or(0), length);
  store_lease_bounds(segment);
  return grant(segment, offset.value_or(0), length);
}

LeaseGrant SegmentPool::grant(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  SegmentInfo& entry = info(segment);
  const bool first = !std::exchange(entry.descriptor_sent, true);
  return {segment, table_.generation(segment), table_.bytes(segment), offset, length, table_.kind(segment), first};
}

void SegmentPool::abandon(LeaseWait& wait) {
  const std::uint32_t segment = std::exchange(wait.segment, kNoSegment);
  if (segment == kNoSegment || !infos_.contains(segment)) return;
  info(segment).reserved = false;
  ++segments_freed_;
}

Status SegmentPool::check_leased(std::uint32_t client, std::uint32_t segment, std::uint64_t offset,
                                 std::uint64_t length) const {
  if (!infos_.contains(segment)) {
    return Status(Code::kInvalidArgument, concat("there is no segment ", segment));
  }
  if (!is_writer(segment, client)) {
    return Status(Code::kInvalidArgument, concat("segment ", segment, " is not leased to client ", client));
  }
  const std::uint64_t size = info(segment).extents.bytes();
  if (offset > size || length > size - offset) {
    return Status(Code::kInvalidArgument, concat("the range of ", length, " bytes at ", offset,
                                                 " is outside of segment ", segment, " of ", size, " bytes"));
  }
  if (!is_leased(info(segment), offset, length)) {
    return Status(Code::kInvalidArgument, concat("the range of ", length, " bytes at ", offset, " of segment ", segment,
                                                 " is not fully covered by a lease of client ", client));
  }
  return Status::ok();
}

Status SegmentPool::unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                            bool done) {
  if (length != 0) {
    if (offset % kReturnGranule != 0 || length % kReturnGranule != 0) {
      return Status(Code::kInvalidArgument,
                    concat("the range of ", length, " bytes at ", offset, " of segment ", segment,
                           " cannot be returned: it must start and end at multiples of ", kReturnGranule, " bytes"));
    }
    RETURN_IF_ERROR(check_leased(client, segment, offset, length));
    remove_leased(info(segment), offset, length);
    store_lease_bounds(segment);
    free_range(segment, offset, length);
  }
  if (!done) return Status::ok();
  if (!infos_.contains(segment) || !is_writer(segment, client)) {
    return Status(Code::kInvalidArgument, concat("segment ", segment, " is not leased to client ", client));
  }
  release_all_leases(segment);
  store_lease_bounds(segment);
  table_.end_lease(segment, info(segment).blobs != 0);
  release_if_empty(segment);
  return Status::ok();
}

void SegmentPool::client_disconnected(std::uint32_t client) {
  for (const auto& [segment, entry] : infos_) {
    if (!is_writer(segment, client)) continue;
    release_all_leases(segment);
    store_lease_bounds(segment);
  }
}

void SegmentPool::client_died(std::uint32_t client) {
  std::vector<std::uint32_t> segments;
  for (const auto& [segment, entry] : infos_) {
    if (is_writer(segment, client)) {
      segments.push_back(segment);
    } else if (table_.writer(segment).token != 0 && table_.writer(segment).client == client) {
      table_.forget_writer(segment);
    }
  }
  for (const std::uint32_t segment : segments) {
    release_all_leases(segment);
    store_lease_bounds(segment);
    table_.forget_writer(segment);
    table_.end_lease(segment, info(segment).blobs != 0);
    release_if_empty(segment);
  }
}

void SegmentPool::restore_leases(const SegmentWriterRef& client, const std::vector<ReportedLease>* leases) {
  for (const auto& [segment, entry] : infos_) {
    if (!is_writer(segment, client.client)) continue;
    table_.set_state(segment, SegmentState::kLeased);
    entry->descriptor_sent = false;  // it may have unmapped segments in which it holds nothing
    if (leases != nullptr) release_all_leases(segment);
  }
  if (leases == nullptr) return;
  for (const ReportedLease& reported : *leases) {
    const auto it = infos_.find(reported.segment);
    if (it == infos_.end() || !is_writer(reported.segment, client.client)) continue;
    if (table_.generation(reported.segment) != reported.generation || reported.length == 0) continue;
    if (it->second->extents.reserve(reported.offset, reported.length).is_ok()) {
      add_leased(*it->second, reported.offset, reported.length);
      it->second->descriptor_sent = true;
    }
  }
  for (const auto& [segment, entry] : infos_) {  // only after all are restored: the next daemon may need the old bounds
    if (is_writer(segment, client.client)) store_lease_bounds(segment);
  }
}

void SegmentPool::store_lease_bounds(std::uint32_t segment) {
  ENTREPOT_SYNC_POINT("leases.change");
  const auto& leased = info(segment).leased;
  if (leased.empty()) return table_.set_leases(segment, {});
  table_.set_leases(segment, {leased.begin()->first, leased.rbegin()->first + leased.rbegin()->second});
}

void SegmentPool::add_leased(SegmentInfo& entry, std::uint64_t offset, std::uint64_t length) {
  entry.leased_bytes += length;
  leased_ += length;
  auto next = entry.leased.lower_bound(offset);
  if (next != entry.leased.end() && next->first == offset + length) {
    length += next->second;
    next = entry.leased.erase(next);
  }
  if (next != entry.leased.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  entry.leased.emplace(offset, length);
}

bool SegmentPool::is_leased(const SegmentInfo& entry, std::uint64_t offset, std::uint64_t length) const {
  auto it = entry.leased.upper_bound(offset);
  if (it == entry.leased.begin()) return false;
  --it;
  return offset - it->first < it->second && length <= it->second - (offset - it->first);
}

void SegmentPool::remove_leased(SegmentInfo& entry, std::uint64_t offset, std::uint64_t length) {
  auto it = std::prev(entry.leased.upper_bound(offset));
  const std::uint64_t start = it->first;
  const std::uint64_t end = start + it->second;
  entry.leased.erase(it);
  if (start < offset) entry.leased.emplace(start, offset - start);
  if (offset + length < end) entry.leased.emplace(offset + length, end - offset - length);
  entry.leased_bytes -= length;
  leased_ -= length;
}

void SegmentPool::release_all_leases(std::uint32_t segment) {
  SegmentInfo& entry = info(segment);
  const auto ranges = std::exchange(entry.leased, {});
  leased_ -= std::exchange(entry.leased_bytes, 0);
  for (const auto& [offset, length] : ranges)
    free_range(segment, offset, length);
}

void SegmentPool::free_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  const Status status = info(segment).extents.free(offset, length);
  if (!status.is_ok()) log_error("segment ", segment, ": ", status.to_string());
}

// ---- blobs ----

void SegmentPool::take_for_blob(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t extent = blob_extent_bytes(offset, length);
  // Recorded by sealed(): until then it counts as leased, in case the daemon dies
  remove_leased(info(segment), offset, extent);
  ++info(segment).blobs;
  blob_bytes_ += extent;
}

void SegmentPool::sealed(std::uint32_t segment) {
  if (infos_.contains(segment)) store_lease_bounds(segment);
}

void SegmentPool::free_blob_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  if (!infos_.contains(segment)) return;  // lost during adoption
  const std::uint64_t extent = blob_extent_bytes(offset, length);
  free_range(segment, offset, extent);
  --info(segment).blobs;
  blob_bytes_ -= extent;
  release_if_empty(segment);
}

void SegmentPool::release_if_empty(std::uint32_t segment) {
  const SegmentInfo& entry = info(segment);
  if (!entry.empty()) return;
  const SegmentState state = table_.state(segment);
  if (state == SegmentState::kReturned) {
    table_.set_state(segment, SegmentState::kFree);
  } else if (state != SegmentState::kFree) {
    return;  // its writer may still use it
  }
  if (entry.retired != 0) return drop(segment);
  ++segments_freed_;
}

}  // namespace entrepot
