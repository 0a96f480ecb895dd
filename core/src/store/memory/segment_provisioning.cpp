// Segment pool, memory side: making segments, keeping some warm, giving them back, adopting them.
#include <algorithm>
#include <utility>

#include "base/align.h"
#include "os/log.h"
#include "os/memfd.h"
#include "store/memory/segment_pool.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMinPunch = 64U << 10;  // smaller holes are not worth a system call

}  // namespace

Result<std::uint32_t> SegmentPool::start_segment(std::uint64_t bytes, bool urgent) {
  RETURN_IF_ERROR(budget_->reserve(BudgetItem::kSegments, bytes));
  const Result<std::uint32_t> added = table_.add(bytes);
  if (!added.is_ok()) {
    budget_->release(BudgetItem::kSegments, bytes);
    return added.status();
  }
  const std::uint32_t segment = *added;
  if (urgent) ++segments_taken_;
  ENTREPOT_SYNC_POINT("segment.added");
  auto entry = std::make_unique<SegmentInfo>();
  entry->extents = ExtentAllocator(bytes);
  infos_[segment] = std::move(entry);
  committed_ += bytes;
  source_->provision(segment, table_.generation(segment), bytes, urgent);
  return infos_.contains(segment) ? segment : kNoSegment;
}

// Assumes that half of the refused size may be available. Committed memory is: whatever is given back can be had again.
void SegmentPool::on_memory_refused(std::uint64_t bytes, const Status& why) {
  warm_stopped_ = true;
  warm_note_ = why.message();
  memory_limit_ = std::min(memory_limit_, committed_ + bytes / 2 / kSegmentAlign * kSegmentAlign);
}

void SegmentPool::retry_memory() {
  warm_stopped_ = false;
  memory_limit_ = UINT64_MAX;
}

void SegmentPool::provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind) {
  if (!infos_.contains(segment) || table_.generation(segment) != generation ||
      table_.state(segment) != SegmentState::kProvisioning) {
    return;  // dropped meanwhile
  }
  if (!status.is_ok()) {
    const std::uint64_t bytes = table_.bytes(segment);
    if (!std::exchange(refused_, true)) {
      log_warning("cannot create segment ", segment, " of ", format_bytes(bytes), ": ", status.message(),
                  "; until more memory is available, smaller segments are created and objects are evicted");
    }
    drop(segment);
    on_memory_refused(bytes, status);
    return;
  }
  if (std::exchange(refused_, false)) log_info("memory for segments is available again");
  latest_kind_ = kind;
  table_.set_kind(segment, kind);
  table_.set_state(segment, SegmentState::kFree);
  ++segments_freed_;
  ENTREPOT_SYNC_POINT("segment.ready");
}

void SegmentPool::drop(std::uint32_t segment) {
  committed_ -= table_.bytes(segment) - info(segment).retired;
  budget_->release(BudgetItem::kSegments, table_.bytes(segment) - info(segment).retired);
  leased_ -= info(segment).leased_bytes;
  const std::uint32_t generation = table_.generation(segment);
  infos_.erase(segment);
  table_.remove(segment);
  ENTREPOT_SYNC_POINT("segment.removed");
  source_->drop(segment, generation);
}

std::uint64_t SegmentPool::record_bytes() const { return budget_->granted(BudgetItem::kRecords); }

std::uint64_t SegmentPool::available_bytes() const {
  return std::min(budget_->free_bytes(), memory_limit_ > committed_ ? memory_limit_ - committed_ : 0);
}

// Records may have taken some of the capacity intended for the large segment.
std::uint64_t SegmentPool::min_large_bytes() const {
  return large_ == 0 ? 0 : std::max(large_ - small_, small_ + kSegmentAlign);
}

void SegmentPool::top_up(bool large_too) {
  if (warm_stopped_) return;
  const std::uint64_t min_large = min_large_bytes();
  std::uint32_t smalls = 0;
  bool has_large = false;
  for (const auto& [segment, entry] : infos_) {
    const SegmentState state = table_.state(segment);
    if (entry->reserved) continue;
    if (state == SegmentState::kProvisioning) return;  // one at a time, so that urgent ones are not queued behind it
    if (state != SegmentState::kFree) continue;
    if (large_ != 0 && entry->extents.bytes() >= min_large) {
      has_large = true;
    } else if (entry->extents.bytes() >= small_) {
      ++smalls;
    }
  }
  std::uint64_t size = 0;
  if (smalls < small_count_) {
    size = small_;
  } else if (large_ != 0 && !has_large) {
    if (!large_too) return;
    size = std::clamp(available_bytes() / kSegmentAlign * kSegmentAlign, min_large, large_);
  } else {
    warm_done_ = true;
    return;
  }
  if (available_bytes() < size) {
    warm_done_ = true;  // the whole capacity is already in use
    return;
  }
  if (const Result<std::uint32_t> started = start_segment(size, false); !started.is_ok()) {
    warm_stopped_ = true;
    warm_note_ = started.status().message();
  }
}

bool SegmentPool::is_droppable(std::uint32_t segment, const SegmentInfo& entry) const {
  if (entry.withheld) return false;
  return is_free(segment) || (has_writer(table_.state(segment)) && entry.empty());
}

// Upper bound of what reclaim() could free, not counting the record arena.
std::uint64_t SegmentPool::reclaimable_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : infos_) {
    const SegmentState state = table_.state(segment);
    if (is_droppable(segment, *entry)) {
      bytes += entry->extents.bytes() - entry->retired;
    } else if (state == SegmentState::kReturned || has_writer(state)) {
      for (const auto& [offset, length] : free_pages(*entry))
        bytes += length;
    }
  }
  return bytes;
}

// Frees the cheapest first: free segments, then empty segments whose writer could still use them, then free ranges of
// segments that hold something. Frees nothing if all of it together would not be enough.
bool SegmentPool::reclaim(std::uint64_t bytes) {
  if (available_bytes() >= bytes) return true;
  const Result<std::uint64_t> trimmed = records_->trim();
  if (!trimmed.is_ok()) log_warning("record arena: ", trimmed.status().to_string());
  if (available_bytes() + reclaimable_bytes() < bytes) return false;

  for (const bool also_leased : {false, true}) {
    while (available_bytes() < bytes) {
      const std::uint64_t missing = bytes - available_bytes();
      std::uint32_t best = kNoSegment;  // the smallest that suffices, else the largest
      for (const auto& [segment, entry] : infos_) {
        if (!(also_leased ? is_droppable(segment, *entry) : is_free(segment))) continue;
        if (best == kNoSegment) {
          best = segment;
          continue;
        }
        const std::uint64_t size = entry->extents.bytes();
        const std::uint64_t best_size = info(best).extents.bytes();
        if (best_size < missing ? size > best_size : size >= missing && size < best_size) best = segment;
      }
      if (best == kNoSegment) break;
      drop(best);
    }
  }
  for (const SegmentState state : {SegmentState::kReturned, SegmentState::kLeased, SegmentState::kQuarantined}) {
    for (const auto& [segment, entry] : infos_) {
      if (available_bytes() >= bytes) return true;
      if (table_.state(segment) == state) retire_free_ranges(segment, bytes - available_bytes());
    }
  }
  return available_bytes() >= bytes;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> SegmentPool::free_pages(const SegmentInfo& entry) {
  const std::uint64_t page = os::page_bytes();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
  if (entry.withheld) return result;
  entry.extents.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t first = round_up(offset, page);
    const std::uint64_t end = (offset + length) / page * page;
    if (end > first && end - first >= kMinPunch) result.emplace_back(first, end - first);
  });
  return result;
}

void SegmentPool::retire_free_ranges(std::uint32_t segment, std::uint64_t enough) {
  SegmentInfo& entry = info(segment);
  std::uint64_t released_bytes = 0;
  for (const auto& [offset, length] : free_pages(entry)) {
    if (released_bytes >= enough) return;
    if (!entry.extents.reserve(offset, length).is_ok()) continue;
    const Status status = source_->punch(segment, offset, length);
    if (!status.is_ok()) {
      log_warning("cannot return memory of segment ", segment, ": ", status.to_string());
      free_range(segment, offset, length);
      return;
    }
    entry.retired += length;
    committed_ -= length;
    budget_->release(BudgetItem::kSegments, length);
    released_bytes += length;
  }
}

// ---- adoption ----

std::uint32_t SegmentPool::adopt_begin() {
  const SegmentAdoption found = table_.adopt();
  for (const std::uint32_t segment : found.damaged)
    table_.remove(segment);
  std::uint32_t lost = static_cast<std::uint32_t>(found.damaged.size());
  for (const std::uint32_t segment : found.live) {
    const std::uint32_t generation = table_.generation(segment);
    if (table_.state(segment) == SegmentState::kProvisioning) {  // nothing depends on it yet
      table_.remove(segment);
      source_->drop(segment, generation);
      continue;
    }
    const MemorySource::Existing memory = source_->find(segment, generation, table_.bytes(segment));
    if (!memory.exists) {
      ++lost;
      table_.remove(segment);
      continue;
    }
    auto entry = std::make_unique<SegmentInfo>();
    entry->extents = ExtentAllocator(table_.bytes(segment));
    entry->holes = memory.holes;
    committed_ += table_.bytes(segment);
    budget_->charge(BudgetItem::kSegments, table_.bytes(segment));
    infos_[segment] = std::move(entry);
  }
  return lost;
}

Status SegmentPool::adopt_blob(const BlobLocation& place) {
  const auto [segment, offset, length, generation] = place;
  const auto it = infos_.find(segment);
  if (it == infos_.end() || table_.generation(segment) != generation) {
    return Status(Code::kObjectLost, concat("segment ", segment, " of generation ", generation, " no longer exists"));
  }
  const std::uint64_t size = it->second->extents.bytes();
  if (length == 0 || offset > size || length > size - offset) {
    return Status(Code::kCorruptData, concat("a blob of ", length, " bytes at ", offset, " is outside of segment ",
                                             segment, " of ", size, " bytes"));
  }
  const std::uint64_t extent = blob_extent_bytes(offset, length);
  RETURN_IF_ERROR(it->second->extents.reserve(offset, extent));
  ++it->second->blobs;
  blob_bytes_ += extent;
  return Status::ok();
}

void SegmentPool::adopt_end(bool withhold) {
  std::vector<std::uint32_t> segments;
  for (const auto& [segment, entry] : infos_)
    segments.push_back(segment);
  for (const std::uint32_t segment : segments) {
    SegmentInfo& entry = info(segment);
    entry.withheld = withhold;
    const SegmentState state = table_.state(segment);
    if (has_writer(state) && table_.writer(segment).token != 0) {
      quarantine(segment);
      continue;
    }
    if (has_writer(state)) {
      table_.end_lease(segment, entry.blobs != 0);
    } else if (entry.blobs != 0 && state == SegmentState::kFree) {
      table_.set_state(segment, SegmentState::kReturned);
    }
    if (!withhold) release_adopted(segment);
  }
}

// Exactly what its writer had leased is not recorded, only within which bounds: everything free there counts as leased
// until the writer reports. Ranges without pages were given back before, so nobody uses them.
void SegmentPool::quarantine(std::uint32_t segment) {
  table_.set_state(segment, SegmentState::kQuarantined);
  retire_holes(segment);
  SegmentInfo& entry = info(segment);
  const SegmentTable::Leases bounds = table_.leases(segment);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  entry.extents.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t first = std::max(offset, bounds.first);
    const std::uint64_t end = std::min(offset + length, bounds.end);
    if (first < end) ranges.emplace_back(first, end - first);
  });
  for (const auto& [offset, length] : ranges) {
    if (entry.extents.reserve(offset, length).is_ok()) add_leased(entry, offset, length);
  }
}

void SegmentPool::retire_holes(std::uint32_t segment) {
  SegmentInfo& entry = info(segment);
  for (const auto& [offset, length] : std::exchange(entry.holes, {})) {
    if (!entry.extents.reserve(offset, length).is_ok()) continue;  // part of a sealed blob
    entry.retired += length;
    committed_ -= length;
    budget_->release(BudgetItem::kSegments, length);
  }
}

void SegmentPool::release_adopted(std::uint32_t segment) {
  SegmentInfo& entry = info(segment);
  if (!entry.holes.empty()) {
    if (entry.blobs == 0) return drop(segment);
    retire_holes(segment);
    retire_free_ranges(segment, UINT64_MAX);
  }
  release_if_empty(segment);
}

void SegmentPool::release_withheld() {
  std::vector<std::uint32_t> segments;
  for (const auto& [segment, entry] : infos_) {
    if (std::exchange(entry->withheld, false)) segments.push_back(segment);
  }
  for (const std::uint32_t segment : segments) {
    const SegmentState state = table_.state(segment);
    if (state == SegmentState::kFree || state == SegmentState::kReturned) release_adopted(segment);
  }
}

// ---- figures ----

std::uint64_t SegmentPool::leased_by(std::uint32_t client) const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : infos_) {
    if (is_writer(segment, client)) bytes += entry->leased_bytes;
  }
  return bytes;
}

std::map<std::uint32_t, std::uint64_t> SegmentPool::leased_by_client() const {
  std::map<std::uint32_t, std::uint64_t> result;
  for (const auto& [segment, entry] : infos_) {
    if (!has_writer(table_.state(segment))) continue;
    result[table_.writer(segment).client] += entry->leased_bytes;
  }
  return result;
}

std::uint64_t SegmentPool::warm_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : infos_) {
    if (table_.state(segment) != SegmentState::kProvisioning) bytes += entry->extents.free_bytes();
  }
  return bytes;
}

std::uint64_t SegmentPool::provisioning_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, entry] : infos_) {
    if (table_.state(segment) == SegmentState::kProvisioning) bytes += entry->extents.bytes();
  }
  return bytes;
}

std::uint64_t SegmentPool::largest_free() const {
  std::uint64_t largest = available_bytes() / kSegmentAlign * kSegmentAlign;
  for (const auto& [segment, entry] : infos_) {
    if (is_free(segment)) largest = std::max(largest, entry->extents.largest_free());
  }
  return largest;
}

std::uint64_t SegmentPool::largest_extent() const {
  std::uint64_t largest = available_bytes() / kSegmentAlign * kSegmentAlign;
  for (const auto& [segment, entry] : infos_) {
    if (table_.state(segment) != SegmentState::kProvisioning)
      largest = std::max(largest, entry->extents.largest_free());
  }
  return largest;
}

std::uint64_t SegmentPool::largest_lease() const {
  return std::max(largest_free(), (available_bytes() + reclaimable_bytes()) / kSegmentAlign * kSegmentAlign);
}

const char* SegmentPool::memory_kind() const {
  switch (latest_kind_) {
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

std::map<std::string, SegmentPool::Summary> SegmentPool::summary() const {
  static constexpr std::array<const char*, 6> kNames = {"absent", "provisioning", "free",
                                                        "leased", "returned",     "quarantined"};
  std::map<std::string, Summary> result;
  for (const auto& [segment, entry] : infos_) {
    Summary& line = result[kNames.at(static_cast<std::size_t>(table_.state(segment)))];
    ++line.count;
    line.bytes += entry->extents.bytes() - entry->retired;
  }
  return result;
}

std::string SegmentPool::describe_pressure() const {
  std::uint64_t scattered = 0;
  for (const auto& [segment, entry] : infos_) {
    if (!is_free(segment)) scattered += entry->extents.free_bytes();
  }
  const std::string short_of = is_short() ? concat(" (currently limited to ", format_bytes(limit_bytes()),
                                                   " for lack of memory: ", warm_note_, ")")
                                          : "";
  return concat("capacity ", format_bytes(options_.capacity_bytes), short_of, ", sealed ", format_bytes(blob_bytes_),
                " in blobs and ", format_bytes(records_->used_bytes()), " in records, unsealed under leases ",
                format_bytes(leased_), ", being provisioned ", format_bytes(provisioning_bytes()),
                ", largest free range ", format_bytes(largest_free()), ", scattered ", format_bytes(scattered));
}

}  // namespace entrepot
