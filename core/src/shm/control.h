// Control memory as a whole: the daemon's twelve regions, and the five of them that clients map.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "base/status.h"
#include "os/unique_fd.h"
#include "shm/leases.h"
#include "shm/region.h"

namespace entrepot {

inline constexpr std::array<RegionKind, 12> kAllRegions = {
    RegionKind::kRoot,    RegionKind::kSlots,    RegionKind::kBlobs,        RegionKind::kIndex,
    RegionKind::kRecords, RegionKind::kSegments, RegionKind::kSessions,     RegionKind::kNames,
    RegionKind::kClients, RegionKind::kSets,     RegionKind::kConsumptions, RegionKind::kOpenings};
// In the order in which HelloReply carries their descriptors.
inline constexpr std::array<RegionKind, 5> kClientRegions = {RegionKind::kRoot, RegionKind::kSlots, RegionKind::kBlobs,
                                                             RegionKind::kIndex, RegionKind::kRecords};

// The daemon's side. Guarded by the daemon's thread.
class ControlMemory {
 public:
  // Creates empty control memory. `capacities`: entries per kind, where different from the default (tests).
  [[nodiscard]] static Result<ControlMemory> create(const InstanceId& instance,
                                                    const std::map<RegionKind, std::uint64_t>& capacities = {});
  // Uses process-private memory, for tests under sanitizers; kinds without a capacity get a small one.
  [[nodiscard]] static Result<ControlMemory> create_private(const InstanceId& instance,
                                                            const std::map<RegionKind, std::uint64_t>& capacities = {});
  // Adopts an earlier daemon's regions; all must be present and belong together. Increments the incarnation.
  [[nodiscard]] static Result<ControlMemory> adopt(std::map<RegionKind, UniqueFd> fds);

  [[nodiscard]] Root& root() const { return *region(RegionKind::kRoot).as<Root>(); }
  [[nodiscard]] Region& region(RegionKind kind) { return regions_[static_cast<std::size_t>(kind) - 1]; }
  [[nodiscard]] const Region& region(RegionKind kind) const { return regions_[static_cast<std::size_t>(kind) - 1]; }
  [[nodiscard]] const InstanceId& instance() const { return region(RegionKind::kRoot).instance(); }

  // Read-only descriptors for a client, in the order of kClientRegions.
  [[nodiscard]] Result<std::array<UniqueFd, 5>> client_fds() const;

 private:
  std::array<Region, 12> regions_;
};

// The client's side: read-only, immutable after attach, safe from any thread.
class ControlView {
 public:
  // `fds` in the order of kClientRegions.
  [[nodiscard]] static Result<ControlView> attach(std::array<UniqueFd, 5> fds, const InstanceId& instance);
  [[nodiscard]] static Result<ControlView> from_memory(const ControlMemory& memory);  // private memory, for tests

  [[nodiscard]] const Root& root() const { return *region(RegionKind::kRoot).as<Root>(); }
  [[nodiscard]] const Region& region(RegionKind kind) const { return regions_[static_cast<std::size_t>(kind) - 1]; }
  [[nodiscard]] const InstanceId& instance() const { return region(RegionKind::kRoot).instance(); }
  [[nodiscard]] bool releases_wanted() const { return (memory_wanted() & kReleasesWanted) != 0; }
  [[nodiscard]] bool leases_wanted() const { return (memory_wanted() & kLeasesWanted) != 0; }
  [[nodiscard]] bool provisions_for_leases() const { return (memory_wanted() & kProvisioningForLeases) != 0; }
  [[nodiscard]] std::uint32_t incarnation() const { return root().incarnation.load(std::memory_order_acquire); }

 private:
  [[nodiscard]] std::uint32_t memory_wanted() const { return root().memory_wanted.load(std::memory_order_relaxed); }

  std::array<Region, 5> regions_;  // kRoot to kRecords are numbers 1 to 5
};

}  // namespace entrepot
