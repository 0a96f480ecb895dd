#include "store/memory/segment_leases.h"

#include <algorithm>

#include "base/align.h"
#include "os/log.h"
#include "shm/leases.h"

namespace entrepot {

SegmentLeases::SegmentLeases(LiveSegments& live, SegmentProvisioning& provisioning, SegmentReclaimer& reclaimer,
                             const SegmentSizes& sizes)
    : live_(&live), provisioning_(&provisioning), reclaimer_(&reclaimer), sizes_(&sizes) {}

// ---- giving ----

Result<std::optional<LeaseGrant>> SegmentLeases::lease(const SegmentWriterRef& client, std::uint64_t min_bytes,
                                                       std::uint64_t want_bytes, LeaseWait& wait) {
  const std::uint64_t capacity = sizes_->capacity_bytes();
  if (min_bytes > capacity) {
    return Status(Code::kStoreFull, concat("an object of ", format_bytes(min_bytes), " (", min_bytes,
                                           " bytes) is larger than the whole store of ", format_bytes(capacity),
                                           ": start the daemon with a larger --size, or put it in parts"));
  }
  const std::uint64_t min_length = round_up(std::max<std::uint64_t>(min_bytes, 1), kLeaseGranule);
  const std::uint64_t want =
      round_up(std::clamp<std::uint64_t>(want_bytes, min_length, std::max(min_length, capacity)), kLeaseGranule);
  if (provisioning_->is_under_way(wait)) return std::optional<LeaseGrant>();
  if (const std::uint32_t segment = provisioning_->take(wait);
      segment != kNoSegment && live_->at(segment).ranges.bytes() >= min_length) {
    return std::optional(lease_segment(client, segment, want));
  }
  if (auto lease =
          lease_from_own_segments(client, std::max(min_length, want / 4 / kLeaseGranule * kLeaseGranule), want))
    return lease;
  if (auto lease = lease_free_segment(client, want, want, sizes_->largest_for_lease(want))) return lease;

  // A client that waits a little at first, and then again, gets what was started for it.
  const std::uint64_t at_most = std::max(sizes_->new_for_lease(min_length, want), sizes_->small_bytes());
  if (provisioning_->join(want, at_most, wait)) return std::optional<LeaseGrant>();

  // No free segment of the wanted size: make one if there is room, otherwise accept a smaller one that exists.
  const std::uint64_t min_segment = round_up(min_length, kSegmentAlign);
  std::uint64_t size = sizes_->new_for_lease(min_length, want);
  if (provisioning_->available_bytes() < size) {
    if (auto lease = lease_free_segment(client, min_length, want, UINT64_MAX)) return lease;
    if (auto lease = lease_from_own_segments(client, min_length, want)) return lease;
    const std::uint64_t preferred_size = std::min(size, std::max(min_segment, sizes_->small_bytes()));
    if (provisioning_->available_bytes() < min_segment && !reclaimer_->reclaim(preferred_size) &&
        !reclaimer_->reclaim(min_segment)) {
      return std::optional<LeaseGrant>();
    }
    size = std::max(min_segment, std::min(size, provisioning_->available_bytes() / kSegmentAlign * kSegmentAlign));
  }
  RETURN_IF_ERROR(provisioning_->start(size, wait));
  if (provisioning_->is_under_way(wait)) return std::optional<LeaseGrant>();
  // The source answered at once: with the segment, or by refusing it, and now less memory is wanted, or none.
  return lease(client, min_bytes, want_bytes, wait);
}

std::optional<LeaseGrant> SegmentLeases::lease_fragment(const SegmentWriterRef& client, std::uint64_t min_bytes) {
  const std::uint64_t granule = blob_granule(min_bytes);
  const std::uint64_t length = round_up(std::max<std::uint64_t>(min_bytes, 1), granule);
  return lease_from_own_segments(client, length, length, granule);
}

std::optional<LeaseGrant> SegmentLeases::lease_from_own_segments(const SegmentWriterRef& client,
                                                                 std::uint64_t min_length, std::uint64_t want,
                                                                 std::uint64_t granule) {
  std::uint32_t best = kNoSegment;
  std::uint64_t best_free = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (entry.withheld || !live_->may_write_again(segment, client)) continue;
    const std::uint64_t largest = entry.ranges.largest_free();
    if (largest >= want) {
      if (const auto offset = live_->ranges(segment).lease(want, granule))
        return grant_in_own_segment(client, segment, *offset, want);
    }
    if (largest < min_length || (best != kNoSegment && largest <= best_free)) continue;
    best = segment;
    best_free = largest;
  }
  if (best == kNoSegment) return std::nullopt;
  const auto range = live_->ranges(best).lease_up_to(want, min_length, granule);
  if (!range) return std::nullopt;
  return grant_in_own_segment(client, best, range->first, range->second);
}

LeaseGrant SegmentLeases::grant_in_own_segment(const SegmentWriterRef& client, std::uint32_t segment,
                                               std::uint64_t offset, std::uint64_t length) {
  // It had unmapped a returned segment, so it gets the descriptor again.
  if (live_->state(segment) == SegmentState::kReturned) live_->lease(segment, client);
  live_->record_leases(segment);
  return grant(segment, offset, length);
}

std::optional<LeaseGrant> SegmentLeases::lease_free_segment(const SegmentWriterRef& client, std::uint64_t min_length,
                                                            std::uint64_t want, std::uint64_t largest) {
  std::uint32_t best = kNoSegment;
  std::uint64_t best_size = 0;
  for (const auto& [segment, entry] : live_->all()) {
    const std::uint64_t size = entry.ranges.bytes();
    if (!live_->is_free_for(client, segment, entry) || size < min_length || size > largest) continue;
    if (best != kNoSegment && !fits_better(size, best_size, want)) continue;
    best = segment;
    best_size = size;
  }
  if (best == kNoSegment) return std::nullopt;
  return lease_segment(client, best, want);
}

LeaseGrant SegmentLeases::lease_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t want) {
  live_->lease(segment, client);
  SegmentRanges& ranges = live_->ranges(segment);
  const std::uint64_t length = std::min(want, ranges.bytes());
  const std::uint64_t offset = ranges.lease(length).value_or(0);  // all of it is free, so this does not fail
  live_->record_leases(segment);
  return grant(segment, offset, length);
}

LeaseGrant SegmentLeases::grant(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  const SegmentTable& table = live_->table();
  const bool first = !live_->mark_descriptor_sent(segment);
  return {segment, table.generation(segment), table.bytes(segment), offset, length, table.kind(segment), first};
}

// ---- taking back ----

Status SegmentLeases::check_leased(std::uint32_t client, std::uint32_t segment, std::uint64_t offset,
                                   std::uint64_t length) const {
  const LiveSegment* entry = live_->find(segment);
  if (entry == nullptr) return Status(Code::kInvalidArgument, concat("there is no segment ", segment));
  if (!live_->is_writer(segment, client)) {
    return Status(Code::kInvalidArgument, concat("segment ", segment, " is not leased to client ", client));
  }
  const std::uint64_t size = entry->ranges.bytes();
  if (offset > size || length > size - offset) {
    return Status(Code::kInvalidArgument, concat("the range of ", length, " bytes at ", offset,
                                                 " is outside of segment ", segment, " of ", size, " bytes"));
  }
  if (!entry->ranges.is_leased(offset, length)) {
    return Status(Code::kInvalidArgument, concat("the range of ", length, " bytes at ", offset, " of segment ", segment,
                                                 " is not fully covered by a lease of client ", client));
  }
  return Status::ok();
}

Status SegmentLeases::unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                              bool done) {
  if (length != 0) {
    if (offset % kReturnGranule != 0 || length % kReturnGranule != 0) {
      return Status(Code::kInvalidArgument,
                    concat("the range of ", length, " bytes at ", offset, " of segment ", segment,
                           " cannot be returned: it must start and end at multiples of ", kReturnGranule, " bytes"));
    }
    RETURN_IF_ERROR(check_leased(client, segment, offset, length));
    const Status status = live_->ranges(segment).unlease(offset, length);
    if (!status.is_ok()) log_error("segment ", segment, ": ", status.to_string());
    live_->record_leases(segment);
  }
  if (!done) return Status::ok();
  if (!live_->contains(segment) || !live_->is_writer(segment, client)) {
    return Status(Code::kInvalidArgument, concat("segment ", segment, " is not leased to client ", client));
  }
  live_->unlease_all(segment);
  live_->record_leases(segment);
  end_lease(segment);
  return Status::ok();
}

void SegmentLeases::end_lease(std::uint32_t segment) {
  live_->end_lease(segment);
  live_->release_if_empty(segment);
}

void SegmentLeases::client_disconnected(std::uint32_t client) {
  for (const auto& [segment, entry] : live_->all()) {
    if (!live_->is_writer(segment, client)) continue;
    live_->unlease_all(segment);
    live_->record_leases(segment);
  }
}

void SegmentLeases::client_died(std::uint32_t client) {
  std::vector<std::uint32_t> segments;
  std::vector<std::uint32_t> former;
  for (const auto& [segment, entry] : live_->all()) {
    const SegmentWriterRef writer = live_->table().writer(segment);
    if (live_->is_writer(segment, client)) {
      segments.push_back(segment);
    } else if (writer.token != 0 && writer.client == client) {
      former.push_back(segment);
    }
  }
  for (const std::uint32_t segment : former) {
    live_->orphan(segment);
    if (live_->table().is_isolated(segment)) live_->release_if_empty(segment);
  }
  for (const std::uint32_t segment : segments) {
    live_->unlease_all(segment);
    live_->record_leases(segment);
    live_->orphan(segment);
    end_lease(segment);
  }
}

void SegmentLeases::restore(const SegmentWriterRef& client, const std::vector<ReportedLease>* leases) {
  for (const auto& [segment, entry] : live_->all()) {
    if (!live_->is_writer(segment, client.client)) continue;
    live_->resume_lease(segment);
    if (leases != nullptr) live_->unlease_all(segment);
  }
  if (leases == nullptr) return;
  for (const ReportedLease& reported : *leases) {
    if (!live_->contains(reported.segment) || !live_->is_writer(reported.segment, client.client)) continue;
    if (live_->table().generation(reported.segment) != reported.generation || reported.length == 0) continue;
    if (!live_->ranges(reported.segment).lease_exactly(reported.offset, reported.length).is_ok()) continue;
    live_->mark_descriptor_sent(reported.segment);
  }
  // Only after all are restored: until then the next daemon may need the old bounds.
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->is_writer(segment, client.client)) live_->record_leases(segment);
  }
}

}  // namespace entrepot
