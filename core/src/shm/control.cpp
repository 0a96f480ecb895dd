#include "shm/control.h"

#include <limits>
#include <new>

#include "base/text.h"
#include "os/clock.h"
#include "os/random.h"

namespace entrepot {

namespace {

// Small enough for a sanitizer's shadow memory, large enough for tests that do not set a capacity.
std::uint64_t small_capacity(RegionKind kind) {
  switch (kind) {
    case RegionKind::kRoot:
      return 1;
    case RegionKind::kIndex:
      return 4ULL << 14;  // tables of up to 2^14 entries
    case RegionKind::kRecords:
      return 16U << 20;
    case RegionKind::kSegments:
    case RegionKind::kSessions:
    case RegionKind::kClients:
    case RegionKind::kSets:
    case RegionKind::kOpenings:
      return 256;
    default:
      return 1U << 13;
  }
}

std::uint64_t requested_capacity(const std::map<RegionKind, std::uint64_t>& capacities, RegionKind kind,
                                 std::uint64_t otherwise) {
  const auto match = capacities.find(kind);
  return match == capacities.end() ? otherwise : match->second;
}

Status start_root(Region& region) {
  RETURN_IF_ERROR(region.ensure(sizeof(Root)));
  auto* root = new (region.entries()) Root{};
  root->incarnation.store(1, std::memory_order_relaxed);
  root->generation_seed.store(os::random_u64(), std::memory_order_relaxed);
  root->created_unix_ns = os::unix_ns();
  return Status::ok();
}

Status check_mark(const Region& region, std::uint64_t mark, std::uint64_t entry_bytes) {
  const std::uint64_t ensured = region.marks().ensured_bytes.load(std::memory_order_relaxed);
  if (ensured <= region.entries_bytes() && mark <= region.capacity() && mark * entry_bytes <= ensured) {
    return Status::ok();
  }
  return Status(Code::kCorruptData, concat("the high-water mark of ", region_name(region.kind()), " is ", mark,
                                           " with ", ensured, " bytes allocated and a capacity of ", region.capacity(),
                                           ": these values are inconsistent; start a new store"));
}

// Checks the marks once, before anything uses them, because they bound every scan.
Status check_marks(const ControlMemory& memory) {
  const Root& root = memory.root();
  RETURN_IF_ERROR(check_mark(memory.region(RegionKind::kSlots), root.slot_high_water.load(), sizeof(Slot)));
  RETURN_IF_ERROR(check_mark(memory.region(RegionKind::kBlobs), root.blob_high_water.load(), sizeof(Blob)));
  RETURN_IF_ERROR(check_mark(memory.region(RegionKind::kSegments), root.segment_high_water.load(), sizeof(Segment)));
  RETURN_IF_ERROR(check_mark(memory.region(RegionKind::kRecords), root.record_high_water.load(), 1));
  for (const RegionKind kind : {RegionKind::kSessions, RegionKind::kNames, RegionKind::kClients, RegionKind::kSets,
                                RegionKind::kConsumptions}) {
    const Region& region = memory.region(kind);
    RETURN_IF_ERROR(check_mark(region, region.marks().high_water.load(), region_entry_bytes(kind)));
  }
  return Status::ok();
}

}  // namespace

Result<ControlMemory> ControlMemory::create(const InstanceId& instance,
                                            const std::map<RegionKind, std::uint64_t>& capacities) {
  ControlMemory memory;
  for (const RegionKind kind : kAllRegions) {
    ASSIGN_OR_RETURN(memory.region(kind), Region::create(kind, instance, requested_capacity(capacities, kind, 0)));
  }
  RETURN_IF_ERROR(start_root(memory.region(RegionKind::kRoot)));
  return memory;
}

Result<ControlMemory> ControlMemory::create_private(const InstanceId& instance,
                                                    const std::map<RegionKind, std::uint64_t>& capacities) {
  ControlMemory memory;
  for (const RegionKind kind : kAllRegions) {
    ASSIGN_OR_RETURN(
        memory.region(kind),
        Region::create_private(kind, instance, requested_capacity(capacities, kind, small_capacity(kind))));
  }
  RETURN_IF_ERROR(start_root(memory.region(RegionKind::kRoot)));
  return memory;
}

Result<ControlMemory> ControlMemory::adopt(std::map<RegionKind, UniqueFd> fds) {
  ControlMemory memory;
  std::optional<InstanceId> instance;  // set by the root, which is first in the list
  for (const RegionKind kind : kAllRegions) {
    const auto match = fds.find(kind);
    if (match == fds.end() || !match->second.valid()) {
      return Status(Code::kCorruptData, concat("region ", region_name(kind), " is missing from the ", fds.size(),
                                               " descriptors of the store; it cannot be adopted, start a new store"));
    }
    ASSIGN_OR_RETURN(memory.region(kind), Region::adopt(std::move(match->second), kind, instance));
    instance = memory.region(kind).instance();
  }
  RETURN_IF_ERROR(check_marks(memory));
  memory.root().incarnation.fetch_add(1, std::memory_order_acq_rel);
  return memory;
}

Result<std::array<UniqueFd, 5>> ControlMemory::client_fds() const {
  std::array<UniqueFd, 5> fds;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    ASSIGN_OR_RETURN(fds[i], region(kClientRegions[i]).read_only_fd());
  }
  return fds;
}

Result<ControlView> ControlView::attach(std::array<UniqueFd, 5> fds, const InstanceId& instance) {
  ControlView view;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    ASSIGN_OR_RETURN(view.regions_[i], Region::attach_read_only(std::move(fds[i]), kClientRegions[i], instance));
  }
  return view;
}

Result<ControlView> ControlView::from_memory(const ControlMemory& memory) {
  ControlView view;
  for (std::size_t i = 0; i < view.regions_.size(); ++i) {
    ASSIGN_OR_RETURN(view.regions_[i], memory.region(kClientRegions[i]).private_view());
  }
  return view;
}

}  // namespace entrepot
