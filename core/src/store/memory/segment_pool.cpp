#include "store/memory/segment_pool.h"

#include "os/log.h"

namespace entrepot {

SegmentPool::SegmentPool(ControlMemory& memory, RecordArena& records, MemorySource& source, MemoryBudget& budget,
                         const StoreOptions& options)
    : live_(memory, source, budget),
      source_(&source),
      sizes_(options.capacity_bytes, options.warm_bytes, options.warm_for_large),
      provisioning_(live_, source, budget, sizes_),
      reclaimer_(live_, provisioning_, sizes_, source, records),
      leases_(live_, provisioning_, reclaimer_, sizes_),
      loads_(live_, provisioning_, reclaimer_, sizes_),
      adopter_(live_, reclaimer_, source),
      figures_(live_, provisioning_, reclaimer_, sizes_, budget, records) {}

// Recorded by sealed(): until then it counts as leased, in case the daemon dies.
void SegmentPool::take_for_blob(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  live_.ranges(segment).seal(offset, blob_extent_bytes(offset, length));
}

void SegmentPool::sealed(std::uint32_t segment) {
  if (live_.contains(segment)) live_.record_leases(segment);
}

void SegmentPool::free_blob_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  if (!live_.contains(segment)) return;  // lost during adoption
  const Status status = live_.ranges(segment).free_blob(offset, blob_extent_bytes(offset, length));
  if (!status.is_ok()) log_error("segment ", segment, ": ", status.to_string());
  live_.release_if_empty(segment);
}

}  // namespace entrepot
