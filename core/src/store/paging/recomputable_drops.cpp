// Dropping of recomputable objects instead of writing them. Only objects whose writer declared a recompute time
// (SlotHints::recompute), and thereby that they can be recomputed, are ever dropped.
#include "store/paging/pager.h"

namespace entrepot {

bool Pager::is_droppable(std::uint32_t slot) const {
  const SlotHints hints = catalog_->directory().hints(slot);
  return hints.drop_recompute_code() != 0 && !hints.pinned;
}

bool Pager::drop_if_cheaper(std::uint32_t slot) {
  return policy_.is_cheaper_to_drop(slot, clock_->monotonic_ns()) && drop(slot);
}

bool Pager::drop(std::uint32_t slot) {
  if (!is_droppable(slot)) return false;
  const std::uint64_t bytes = residency_->resident_bytes(slot);
  if (!residency_->drop(slot)) return false;
  ++stats_.dropped;
  stats_.dropped_bytes += bytes;
  return true;
}

// Last resort: nothing else can leave and nothing can be written. Drops recomputable objects whatever the cost rather
// than failing a value that is needed now. Returns whether memory was freed.
bool Pager::drop_recomputable(std::uint64_t bytes, const std::unordered_set<std::uint32_t>& pinned) {
  if (can_write() || !writes_.empty()) return false;
  const auto allowed = [&](std::uint32_t slot) {
    return is_droppable(slot) && !pinned.contains(slot) && !is_eviction_blocked(slot) && !loads_.contains(slot);
  };
  bool dropped = false;
  for (const std::uint32_t slot : policy_.victims(bytes, clock_->monotonic_ns(), allowed))
    dropped = drop(slot) || dropped;
  return dropped;
}

bool Pager::can_write() const {
  return enabled() && clock_->monotonic_ns() >= retry_writes_ns_ && spill_->stats().note.empty();
}

void Pager::update_measured_costs() {
  EvictionCosts costs;
  costs.write_ns_per_byte = write_rate_.ns_per_byte();
  costs.read_ns_per_byte = read_rate_.ns_per_byte();
  policy_.set_measured(costs);
}

}  // namespace entrepot
