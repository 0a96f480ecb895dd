#include "store/memory/segment_figures.h"

#include <algorithm>
#include <array>

namespace entrepot {

SegmentFigures::SegmentFigures(const LiveSegments& live, const SegmentProvisioning& provisioning,
                               const SegmentReclaimer& reclaimer, const SegmentSizes& sizes, const MemoryBudget& budget,
                               const RecordArena& records)
    : live_(&live),
      provisioning_(&provisioning),
      reclaimer_(&reclaimer),
      sizes_(&sizes),
      budget_(&budget),
      records_(&records) {}

std::uint64_t SegmentFigures::record_bytes() const { return budget_->granted(BudgetItem::kRecords); }

std::uint64_t SegmentFigures::fixed_bytes() const { return budget_->fixed_bytes(); }

std::uint64_t SegmentFigures::leased_by(std::uint32_t client) const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->is_writer(segment, client)) bytes += entry.ranges.leased_bytes();
  }
  return bytes;
}

std::map<std::uint32_t, std::uint64_t> SegmentFigures::leased_by_client() const {
  std::map<std::uint32_t, std::uint64_t> result;
  for (const auto& [segment, entry] : live_->all()) {
    if (!has_writer(live_->state(segment))) continue;
    result[live_->table().writer(segment).client] += entry.ranges.leased_bytes();
  }
  return result;
}

std::uint64_t SegmentFigures::warm_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->state(segment) != SegmentState::kProvisioning) bytes += entry.ranges.free_bytes();
  }
  return bytes;
}

std::uint64_t SegmentFigures::in_use_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    const SegmentState state = live_->state(segment);
    const bool is_spare = state == SegmentState::kFree || state == SegmentState::kProvisioning;
    if (entry.reserved || !is_spare) bytes += entry.ranges.committed_bytes();
  }
  return bytes;
}

std::uint64_t SegmentFigures::provisioning_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->state(segment) == SegmentState::kProvisioning) bytes += entry.ranges.bytes();
  }
  return bytes;
}

std::uint64_t SegmentFigures::largest_new() const {
  return provisioning_->available_bytes() / kSegmentAlign * kSegmentAlign;
}

std::uint64_t SegmentFigures::largest_free() const {
  std::uint64_t largest = largest_new();
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->is_free(segment, entry)) largest = std::max(largest, entry.ranges.largest_free());
  }
  return largest;
}

std::uint64_t SegmentFigures::largest_extent() const {
  std::uint64_t largest = largest_new();
  for (const auto& [segment, entry] : live_->all()) {
    if (live_->state(segment) != SegmentState::kProvisioning) largest = std::max(largest, entry.ranges.largest_free());
  }
  return largest;
}

std::uint64_t SegmentFigures::largest_lease() const {
  const std::uint64_t obtainable = provisioning_->available_bytes() + reclaimer_->reclaimable_bytes();
  return std::max(largest_free(), obtainable / kSegmentAlign * kSegmentAlign);
}

const char* SegmentFigures::memory_kind() const {
  switch (provisioning_->latest_kind()) {
    case MemoryKind::kHugePages:
      return "huge pages";
    case MemoryKind::kSmallPages:
      return "small pages";
    case MemoryKind::kCold:
      return "cold";
    case MemoryKind::kUnknown:
      break;
  }
  return "unknown";
}

std::map<std::string, SegmentFigures::Summary> SegmentFigures::summary() const {
  static constexpr std::array<const char*, 6> kNames = {"absent", "provisioning", "free",
                                                        "leased", "returned",     "quarantined"};
  std::map<std::string, Summary> result;
  for (const auto& [segment, entry] : live_->all()) {
    Summary& line = result[kNames.at(static_cast<std::size_t>(live_->state(segment)))];
    ++line.count;
    line.bytes += entry.ranges.committed_bytes();
  }
  return result;
}

std::string SegmentFigures::describe_pressure() const {
  std::uint64_t scattered = 0;
  for (const auto& [segment, entry] : live_->all()) {
    if (!live_->is_free(segment, entry)) scattered += entry.ranges.free_bytes();
  }
  std::string short_of;
  if (provisioning_->is_short()) {
    short_of = concat(" (currently limited to ", format_bytes(provisioning_->limit_bytes()),
                      " for lack of memory: ", provisioning_->warm_note(), ")");
  } else if (!provisioning_->latest_refusal().empty()) {
    short_of = concat(" (for lack of memory, refused a moment ago: ", provisioning_->latest_refusal(), ")");
  }
  return concat("capacity ", format_bytes(sizes_->capacity_bytes()), short_of, ", sealed ",
                format_bytes(live_->blob_bytes()), " in blobs and ", format_bytes(records_->used_bytes()),
                " in records, unsealed under leases ", format_bytes(live_->leased_bytes()), ", being provisioned ",
                format_bytes(provisioning_bytes()), ", largest free range ", format_bytes(largest_free()),
                ", scattered ", format_bytes(scattered));
}

}  // namespace entrepot
