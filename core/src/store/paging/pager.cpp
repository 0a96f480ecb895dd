#include "store/paging/pager.h"

namespace entrepot {

Pager::Pager(const PagerDeps& deps)
    : catalog_(&deps.parts.catalog),
      blobs_(&deps.parts.blobs),
      residency_(&deps.residency),
      manifest_(&deps.parts.manifest),
      pins_(&deps.pins),
      spill_(deps.spill),
      candidates_({*catalog_, *residency_, deps.sets, deps.pins, deps.clock, deps.spill != nullptr}),
      writer_({*catalog_, deps.parts.blobs, *manifest_, *residency_, deps.clock, deps.spill}),
      loader_({*catalog_, deps.parts.blobs, deps.residency, deps.pool, candidates_, deps.clock, deps.spill,
               [this](std::uint64_t bytes, bool ahead) {
                 return reclaimer_.reclaim(bytes, ahead ? Purpose::kPrefetch : Purpose::kLoad);
               }}),
      prefetcher_({*catalog_, *blobs_, deps.sets, deps.pins, candidates_, writer_, loader_, deps.clock,
                   deps.options.capacity_bytes}),
      reclaimer_({*catalog_, *blobs_, deps.objects, deps.residency, deps.pool, candidates_, writer_, loader_,
                  prefetcher_, deps.clock, deps.spill != nullptr, deps.options.spill_high_percent,
                  deps.options.spill_low_percent}) {}

// ---- objects ----

void Pager::on_adopted() {
  const DirectoryWriter& directory = catalog_->directory();
  for (std::uint32_t slot = 0; slot < directory.size(); ++slot) {
    if (!directory.is_findable(slot)) continue;
    if (!enabled()) {
      hints_changed(slot);
      continue;
    }
    if (residency_->resident_bytes(slot) != 0) candidates_.admit(slot);
    track(slot);
    manifest_->remember(slot);  // the previous daemon's last manifest entries may not have reached the disk
  }
}

void Pager::track(std::uint32_t slot) { prefetcher_.track(slot); }

void Pager::object_sealed(std::uint32_t slot) {
  candidates_.object_sealed(slot);
  if (enabled()) track(slot);
}

void Pager::object_ended(std::uint32_t slot) {
  candidates_.object_ended(slot);
  if (!enabled()) return;
  writer_.object_ended(slot);
  prefetcher_.object_ended(slot);
  loader_.object_ended(slot);
}

void Pager::hints_changed(std::uint32_t slot) {
  candidates_.hints_changed(slot);
  prefetcher_.set_changed(slot);
}

// ---- requests and events ----

void Pager::load(std::uint32_t slot, std::uint32_t reader) {
  if (catalog_->is_resident(slot)) return;
  if (enabled()) {
    apply_read_log();  // earlier reads, to keep their order
    prefetcher_.was_used(slot, reader);
  }
  loader_.load(slot);
}

void Pager::take_completions() {
  if (!enabled()) return;
  for (const SpillCompletion& done : spill_->take_completions()) {
    if (done.is_read) {
      loader_.complete(done);
    } else {
      reclaimer_.on_written(writer_.complete(done));
    }
    EvictionCosts costs;
    costs.write_ns_per_byte = writer_.ns_per_byte();
    costs.read_ns_per_byte = loader_.ns_per_byte();
    policy().set_measured(costs);
    prefetcher_.on_io_done();
  }
}

void Pager::run_pending() {
  if (!enabled()) return;
  reclaimer_.begin_turn();
  prefetcher_.poll();
  loader_.try_waiting();
  prefetcher_.run();
  reclaimer_.retry_evictions();
  reclaimer_.write_back();
  candidates_.trim_held();
}

ImmovableMemory Pager::immovable(std::uint32_t client,
                                 const std::function<std::uint64_t(std::uint32_t blob)>& covered) const {
  return immovable_memory(*catalog_, *blobs_, *pins_, candidates_.user_pinned(), client, covered);
}

}  // namespace entrepot
