#include "store/memory/segment_provisioning.h"

#include <utility>

#include "os/log.h"

namespace entrepot {

SegmentProvisioning::SegmentProvisioning(LiveSegments& live, MemorySource& source, const MemoryBudget& budget,
                                         const SegmentSizes& sizes)
    : live_(&live),
      source_(&source),
      budget_(&budget),
      sizes_(&sizes),
      warm_done_(sizes.missing(0, false) == SegmentSizes::Missing::kNothing) {}

std::uint64_t SegmentProvisioning::available_bytes() const {
  const std::uint64_t committed = live_->committed_bytes();
  const std::uint64_t free = budget_->free_bytes();
  return std::min(free - std::min(free, kept_free_), memory_limit_ > committed ? memory_limit_ - committed : 0);
}

Result<std::uint32_t> SegmentProvisioning::make(std::uint64_t bytes, bool urgent) {
  ASSIGN_OR_RETURN(const std::uint32_t segment, live_->add(bytes, urgent));
  source_->provision(segment, live_->table().generation(segment), bytes, urgent);
  return live_->contains(segment) ? segment : kNoSegment;
}

// ---- for a request ----

Status SegmentProvisioning::start(std::uint64_t bytes, LeaseWait& wait) {
  ASSIGN_OR_RETURN(wait.segment, make(bytes, true));
  if (wait.segment != kNoSegment) live_->reserve(wait.segment);
  return Status::ok();
}

bool SegmentProvisioning::join(std::uint64_t min_bytes, std::uint64_t max_bytes, LeaseWait& wait) {
  for (const auto& [segment, entry] : live_->all()) {
    const std::uint64_t size = entry.ranges.bytes();
    if (live_->state(segment) != SegmentState::kProvisioning || !entry.urgent || entry.reserved) continue;
    if (size < min_bytes || size > max_bytes) continue;
    wait.segment = segment;
    live_->reserve(segment);
    return true;
  }
  return false;
}

bool SegmentProvisioning::is_under_way(const LeaseWait& wait) const {
  return wait.segment != kNoSegment && live_->state(wait.segment) == SegmentState::kProvisioning;
}

std::uint32_t SegmentProvisioning::take(LeaseWait& wait) {
  const std::uint32_t segment = std::exchange(wait.segment, kNoSegment);
  if (segment != kNoSegment) live_->unreserve(segment);
  return segment;
}

void SegmentProvisioning::abandon(LeaseWait& wait) {
  const std::uint32_t segment = std::exchange(wait.segment, kNoSegment);
  if (segment != kNoSegment && live_->contains(segment)) live_->offer(segment);
}

void SegmentProvisioning::provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status,
                                      MemoryKind kind) {
  const SegmentTable& table = live_->table();
  if (!live_->contains(segment) || table.generation(segment) != generation) return;  // dropped meanwhile
  if (table.state(segment) != SegmentState::kProvisioning) {
    if (status.is_ok()) live_->set_kind(segment, kind);
    return;
  }
  if (!status.is_ok()) {
    const std::uint64_t bytes = table.bytes(segment);
    if (refusal_.empty()) {
      log_warning("cannot create segment ", segment, " of ", format_bytes(bytes), ": ", status.message(),
                  "; until more memory is available, smaller segments are created and objects are evicted");
    }
    refusal_ = status.message();
    live_->drop(segment);
    on_memory_refused(bytes, status);
    return;
  }
  if (!refusal_.empty()) log_info("memory for segments is available again");
  refusal_.clear();
  latest_kind_ = kind;
  live_->set_ready(segment, kind);
}

// Assumes that half of the refused size may be available. Committed memory is: whatever is given back can be had again.
void SegmentProvisioning::on_memory_refused(std::uint64_t bytes, const Status& why) {
  warm_stopped_ = true;
  warm_note_ = why.message();
  memory_limit_ = std::min(memory_limit_, live_->committed_bytes() + bytes / 2 / kSegmentAlign * kSegmentAlign);
}

// ---- ahead of demand ----

void SegmentProvisioning::retry_memory() {
  warm_stopped_ = false;
  warm_note_.clear();
  memory_limit_ = UINT64_MAX;
}

void SegmentProvisioning::top_up(bool large_too) {
  if (warm_stopped_) return;
  std::uint32_t free_small = 0;
  bool has_free_large = false;
  for (const auto& [segment, entry] : live_->all()) {
    const SegmentState state = live_->state(segment);
    if (entry.reserved) continue;
    if (state == SegmentState::kProvisioning) return;  // one at a time, so that urgent ones are not queued behind it
    if (state != SegmentState::kFree || live_->table().is_isolated(segment)) continue;
    if (sizes_->is_large(entry.ranges.bytes())) {
      has_free_large = true;
    } else if (entry.ranges.bytes() >= sizes_->small_bytes()) {
      ++free_small;
    }
  }
  const SegmentSizes::Missing missing = sizes_->missing(free_small, has_free_large);
  if (missing == SegmentSizes::Missing::kLarge && !large_too) return;
  const std::uint64_t size =
      missing == SegmentSizes::Missing::kLarge ? sizes_->new_large(available_bytes()) : sizes_->small_bytes();
  if (missing == SegmentSizes::Missing::kNothing || available_bytes() < size) {
    warm_done_ = true;  // all of it is there, or the whole capacity is already in use
    return;
  }
  if (const Result<std::uint32_t> made = make(size, false); !made.is_ok()) {
    warm_stopped_ = true;
    warm_note_ = made.status().message();
  }
}

}  // namespace entrepot
