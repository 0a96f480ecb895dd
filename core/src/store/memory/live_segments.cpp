#include "store/memory/live_segments.h"

#include <utility>

#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

LiveSegments::LiveSegments(ControlMemory& memory, MemorySource& source, MemoryBudget& budget)
    : source_(&source), budget_(&budget), table_(memory) {}

const LiveSegment* LiveSegments::find(std::uint32_t segment) const {
  const auto it = segments_.find(segment);
  return it == segments_.end() ? nullptr : &it->second;
}

bool LiveSegments::is_mappable(std::uint32_t segment) const {
  return contains(segment) && table_.state(segment) != SegmentState::kProvisioning;
}

bool LiveSegments::is_spare(std::uint32_t segment, const LiveSegment& entry) const {
  return table_.state(segment) == SegmentState::kFree && !entry.reserved && !entry.withheld;
}

bool LiveSegments::is_free(std::uint32_t segment, const LiveSegment& entry) const {
  return is_spare(segment, entry) && !table_.is_isolated(segment);
}

bool LiveSegments::is_free_for(const SegmentWriterRef& client, std::uint32_t segment, const LiveSegment& entry) const {
  if (!is_spare(segment, entry)) return false;
  return !table_.is_isolated(segment) || is_last_writer(client, segment);
}

bool LiveSegments::is_droppable(std::uint32_t segment, const LiveSegment& entry) const {
  if (entry.withheld) return false;
  return is_spare(segment, entry) || (has_writer(table_.state(segment)) && entry.ranges.is_empty());
}

bool LiveSegments::is_writer(std::uint32_t segment, std::uint32_t client) const {
  if (!has_writer(table_.state(segment))) return false;
  const SegmentWriterRef writer = table_.writer(segment);
  return writer.client == client && writer.token != 0;
}

bool LiveSegments::may_pass_on(std::uint32_t segment, std::uint32_t client) const {
  const SegmentWriterRef writer = table_.writer(segment);
  return writer.isolated && (writer.token == 0 || writer.client == client);
}

bool LiveSegments::may_write_again(std::uint32_t segment, const SegmentWriterRef& client) const {
  const SegmentState state = table_.state(segment);
  return (state == SegmentState::kLeased || state == SegmentState::kReturned) && is_last_writer(client, segment);
}

bool LiveSegments::is_last_writer(const SegmentWriterRef& client, std::uint32_t segment) const {
  const SegmentWriterRef writer = table_.writer(segment);
  return writer.client == client.client && writer.token == client.token && writer.token != 0 &&
         writer.isolated == client.isolated;
}

// ---- from the first byte to the last ----

Result<std::uint32_t> LiveSegments::add(std::uint64_t bytes, bool urgent) {
  RETURN_IF_ERROR(budget_->reserve(BudgetItem::kSegments, bytes));
  const Result<std::uint32_t> added = table_.add(bytes);
  if (!added.is_ok()) {
    budget_->release(BudgetItem::kSegments, bytes);
    return added.status();
  }
  if (urgent) {
    ++taken_;
    ++provisioned_urgently_;
  }
  ENTREPOT_SYNC_POINT("segment.added");
  segments_.try_emplace(*added, bytes, totals_).first->second.urgent = urgent;
  committed_ += bytes;
  return *added;
}

bool LiveSegments::is_provisioned_urgently(std::uint32_t segment) const {
  return table_.state(segment) == SegmentState::kProvisioning && at(segment).urgent;
}

void LiveSegments::set_ready(std::uint32_t segment, MemoryKind kind) {
  if (is_provisioned_urgently(segment)) --provisioned_urgently_;
  table_.set_kind(segment, kind);
  table_.set_state(segment, SegmentState::kFree);
  ++freed_;
  ENTREPOT_SYNC_POINT("segment.ready");
}

void LiveSegments::drop(std::uint32_t segment) {
  const auto entry = segments_.find(segment);
  if (is_provisioned_urgently(segment)) --provisioned_urgently_;
  uncommit(entry->second.ranges.committed_bytes());
  const std::uint32_t generation = table_.generation(segment);
  segments_.erase(entry);
  table_.remove(segment);
  ENTREPOT_SYNC_POINT("segment.removed");
  source_->drop(segment, generation);
}

Status LiveSegments::retire(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  RETURN_IF_ERROR(ranges(segment).retire(offset, length));
  uncommit(length);
  return Status::ok();
}

void LiveSegments::uncommit(std::uint64_t bytes) {
  committed_ -= bytes;
  budget_->release(BudgetItem::kSegments, bytes);
}

void LiveSegments::offer(std::uint32_t segment) {
  unreserve(segment);
  ++freed_;
}

// ---- writers ----

void LiveSegments::lease(std::uint32_t segment, const SegmentWriterRef& client) {
  const bool was_free = table_.state(segment) == SegmentState::kFree;
  table_.lease(segment, client);
  if (was_free) {
    ++taken_;
    ENTREPOT_SYNC_POINT("lease.recorded");
  }
  segments_.at(segment).descriptor_sent = false;
  segments_.at(segment).orphaned = false;
}

void LiveSegments::orphan(std::uint32_t segment) {
  table_.forget_writer(segment);
  segments_.at(segment).orphaned = true;
  ++orphaned_;
}

void LiveSegments::end_lease(std::uint32_t segment) { table_.end_lease(segment, at(segment).ranges.has_blobs()); }

void LiveSegments::resume_lease(std::uint32_t segment) {
  table_.set_state(segment, SegmentState::kLeased);
  segments_.at(segment).descriptor_sent = false;  // it may have unmapped segments in which it holds nothing
}

void LiveSegments::take_for_loads(std::uint32_t segment) {
  if (table_.state(segment) == SegmentState::kFree) {
    table_.set_state(segment, SegmentState::kReturned);
    ++taken_;
  }
  table_.forget_writer(segment);  // it may hold anybody's data now
  segments_.at(segment).orphaned = false;
}

bool LiveSegments::mark_descriptor_sent(std::uint32_t segment) {
  return std::exchange(segments_.at(segment).descriptor_sent, true);
}

void LiveSegments::unlease_all(std::uint32_t segment) {
  const Status status = ranges(segment).unlease_all();
  if (!status.is_ok()) log_error("segment ", segment, ": ", status.to_string());
}

void LiveSegments::record_leases(std::uint32_t segment) {
  ENTREPOT_SYNC_POINT("leases.change");
  table_.set_leases(segment, at(segment).ranges.lease_bounds());
}

void LiveSegments::release_if_empty(std::uint32_t segment) {
  const SegmentRanges& held = at(segment).ranges;
  if (!held.is_empty()) return;
  const SegmentState state = table_.state(segment);
  if (state == SegmentState::kReturned) {
    table_.set_state(segment, SegmentState::kFree);
  } else if (state != SegmentState::kFree) {
    return;  // its writer may still use it
  }
  const bool has_no_user = table_.is_isolated(segment) && table_.writer(segment).token == 0;
  if (held.retired_bytes() != 0 || has_no_user) return drop(segment);
  ++freed_;
}

// ---- adoption ----

void LiveSegments::adopt(std::uint32_t segment) {
  const std::uint64_t bytes = table_.bytes(segment);
  segments_.try_emplace(segment, bytes, totals_);
  committed_ += bytes;
  budget_->charge(BudgetItem::kSegments, bytes);
}

std::vector<std::uint32_t> LiveSegments::release_withheld() {
  std::vector<std::uint32_t> released;
  for (auto& [segment, entry] : segments_) {
    if (std::exchange(entry.withheld, false)) released.push_back(segment);
  }
  return released;
}

}  // namespace entrepot
