#include "store/paging/reclaimer.h"

#include <algorithm>
#include <span>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxWritingBytes = 256U << 20;  // at once, unless a request waits for more
constexpr std::uint64_t kReclaimStep = 32U << 20;
constexpr std::uint64_t kWriteBackIntervalNs = 10'000'000;  // interval between checks while nothing had to be written

}  // namespace

// ---- on demand ----

bool Reclaimer::reclaim(std::uint64_t bytes, Purpose purpose) {
  if (!deps_.spills && deps_.candidates.policy().size() == 0) return false;
  deps_.prefetcher.apply_read_log();
  const Round round{bytes, purpose, deps_.candidates.pinned_slots(), deps_.writer.quota_left(),
                    deps_.blobs.clean_bytes() + deps_.writer.room_bytes()};
  short_of_quota_ = false;
  Slots victims = find_victims(round);
  const auto drops = [this](std::uint32_t slot) {
    return remove_dead(slot) || (deps_.spills && drop_if_cheaper(slot));
  };
  const bool dropped = std::erase_if(victims, drops) != 0;
  if (!deps_.spills) return dropped || drop_at_any_cost(round);
  const bool writing = write_dirty(victims, round);
  if (evict_clean(victims, round) || dropped) return true;
  if (writing) return false;  // there will be memory when that is done
  if (evict_others(victims, round)) return true;
  return purpose != Purpose::kPrefetch && drop_at_any_cost(round);
}

bool Reclaimer::may_leave(std::uint32_t slot, const SlotSet& pinned) const {
  return !pinned.contains(slot) && !deps_.candidates.is_held(slot) && !deps_.loader.is_loading(slot);
}

// Whether the object's memory could become available for this purpose: without being written, or by being written.
bool Reclaimer::helps(std::uint32_t slot, const Round& round) {
  if (!deps_.spills || deps_.candidates.policy().is_dead(slot) || is_droppable(slot)) return true;
  const bool fits = deps_.writer.unwritten_bytes(slot) <= round.quota_left;
  const std::uint64_t bytes = deps_.residency.resident_bytes(slot);
  const auto reserve_allows = [&](std::uint64_t exchangeable) {
    return round.purpose != Purpose::kNew || reserve_.allows(bytes, bytes, exchangeable);
  };
  short_of_quota_ = short_of_quota_ || !fits || !reserve_allows(deps_.blobs.clean_bytes() + round.quota_left);
  return fits && reserve_allows(round.exchangeable);
}

// Starts writing those without a copy, as far as the quota goes. Returns whether any of them is being written.
bool Reclaimer::write_dirty(const Slots& victims, const Round& round) {
  const std::uint64_t now = deps_.clock.monotonic_ns();
  const std::uint64_t most_in_flight = std::max(kMaxWritingBytes, round.bytes);
  std::uint64_t quota_left = round.quota_left;
  bool writing = false;
  for (const std::uint32_t slot : victims) {
    const std::uint64_t bytes = deps_.writer.unwritten_bytes(slot);
    if (bytes != 0 && bytes <= quota_left && deps_.writer.bytes_in_flight() < most_in_flight &&
        !deps_.writer.is_paused(now)) {
      deps_.writer.write(slot);
      quota_left -= bytes;
    }
    writing = writing || deps_.writer.is_writing(slot);
  }
  return writing;
}

// Objects in a run being read ahead are evicted only as a last resort, and never for more read-ahead.
Reclaimer::Slots Reclaimer::find_victims(const Round& round) {
  const auto find = [&](bool spare_prefetched) {
    return deps_.candidates.policy().victims(
        std::max(round.bytes, kReclaimStep), deps_.clock.monotonic_ns(), [&](std::uint32_t slot) {
          return may_leave(slot, round.pinned) && !(spare_prefetched && deps_.prefetcher.is_target(slot)) &&
                 helps(slot, round);
        });
  };
  Slots victims = find(true);
  if (victims.empty() && deps_.prefetcher.has_targets() && round.purpose != Purpose::kPrefetch) victims = find(false);
  return victims;
}

// The preferred victims cannot be written (e.g. disk full) or share blobs with pinned objects.
bool Reclaimer::evict_others(const Slots& tried, const Round& round) {
  const SlotSet excluded(tried.begin(), tried.end());
  const auto others = [&](std::uint32_t slot) {
    return may_leave(slot, round.pinned) && !deps_.prefetcher.is_target(slot) && !excluded.contains(slot) &&
           deps_.residency.is_clean(slot);
  };
  const std::uint64_t now = deps_.clock.monotonic_ns();
  return evict_clean(deps_.candidates.policy().victims(std::max(round.bytes, kReclaimStep), now, others), round);
}

// Evicts the clean ones among `slots`, in order, until enough bytes are free. Returns whether memory was freed.
bool Reclaimer::evict_clean(const Slots& slots, const Round& round) {
  Slots clean;
  std::uint64_t bytes = 0;
  std::uint64_t largest = 0;
  for (const std::uint32_t slot : slots) {
    if (!deps_.residency.is_clean(slot)) continue;
    const std::uint64_t size = deps_.residency.resident_bytes(slot);
    const std::uint64_t largest_with_it = std::max(largest, size);
    const bool allowed =
        round.purpose != Purpose::kNew || reserve_.allows(bytes + size, largest_with_it, round.exchangeable);
    if (!allowed) continue;
    clean.push_back(slot);
    bytes += size;
    largest = largest_with_it;
    if (bytes >= round.bytes) break;
  }
  return !clean.empty() && evict_slots(clean) != 0;
}

std::uint64_t Reclaimer::evict_slots(const Slots& slots) {
  std::uint64_t largest = 0;
  for (const std::uint32_t slot : slots)
    largest = std::max(largest, deps_.residency.resident_bytes(slot));
  const std::uint64_t spilled_before = deps_.blobs.spilled_bytes();
  const ObjectResidency::Eviction done = deps_.residency.evict(slots);
  reserve_.evicted(largest, deps_.blobs.spilled_bytes() - spilled_before);
  for (const std::uint32_t slot : done.evicted)
    deps_.candidates.evicted(slot);
  for (const std::uint32_t slot : slots)
    deps_.candidates.forget_absent(slot);
  for (const std::uint32_t slot : done.evicted)
    deps_.candidates.forget_absent(slot);
  stats_.evictions += done.evicted.size();
  stats_.evicted_bytes += done.bytes;
  return done.bytes;
}

// ---- on request ----

Status Reclaimer::evict(std::uint32_t slot) {
  if (!deps_.spills) {
    return Status(Code::kInvalidArgument, "this store has no spill folder: start it with --spill-path DIR");
  }
  const DirectoryWriter& directory = deps_.catalog.directory();
  if (directory.hints(slot).pinned) {
    return Status(Code::kInvalidArgument,
                  concat("object ", to_hex(directory.at(slot).id), " is pinned in memory by a user: unpin it first"));
  }
  if (!deps_.residency.is_clean(slot)) {
    if (deps_.catalog.blobs_of(slot).empty()) return Status::ok();  // payload is in its record, and stays
    deps_.writer.write_to_evict(slot);
    return Status::ok();
  }
  static_cast<void>(evict_slots({slot}));
  return Status::ok();
}

void Reclaimer::on_written(const SpillWriter::Written& written) {
  for (const std::uint32_t slot : written.clean)
    deps_.candidates.policy().set_clean(slot, true);
  for (const std::uint32_t slot : written.leaving)
    static_cast<void>(evict(slot).is_ok());  // pinned meanwhile: stays in memory
}

void Reclaimer::retry_evictions() {
  for (const std::uint32_t slot : deps_.writer.retry_leaving())
    static_cast<void>(evict(slot).is_ok());  // pinned meanwhile: stays in memory
}

// ---- dropping ----

bool Reclaimer::remove_dead(std::uint32_t slot) {
  if (!deps_.candidates.policy().is_dead(slot)) return false;
  const IdBytes id = deps_.catalog.directory().at(slot).id;
  static_cast<void>(deps_.objects.remove(std::span(&id, 1)));
  ++stats_.dropped_dead;
  return true;
}

bool Reclaimer::is_droppable(std::uint32_t slot) const {
  const SlotHints hints = deps_.catalog.directory().hints(slot);
  return hints.drop_recompute_code() != 0 && !hints.pinned;
}

bool Reclaimer::drop_if_cheaper(std::uint32_t slot) {
  return deps_.candidates.policy().is_cheaper_to_drop(slot, deps_.clock.monotonic_ns()) && drop(slot);
}

bool Reclaimer::drop(std::uint32_t slot) {
  if (!is_droppable(slot)) return false;
  const std::uint64_t bytes = deps_.residency.resident_bytes(slot);
  if (!deps_.residency.drop(slot)) return false;
  ++stats_.dropped;
  stats_.dropped_bytes += bytes;
  return true;
}

// Last resort: nothing else can leave and nothing can be written. Drops recomputable objects whatever the cost rather
// than failing a value that is needed now. Returns whether memory was freed.
bool Reclaimer::drop_at_any_cost(const Round& round) {
  if (!deps_.writer.is_idle()) return false;
  const bool can_write = deps_.writer.can_write();
  const auto allowed = [&](std::uint32_t slot) {
    return is_droppable(slot) && may_leave(slot, round.pinned) &&
           !(can_write && deps_.writer.unwritten_bytes(slot) <= round.quota_left);
  };
  bool dropped = false;
  for (const std::uint32_t slot : deps_.candidates.policy().victims(round.bytes, deps_.clock.monotonic_ns(), allowed))
    dropped = drop(slot) || dropped;
  return dropped;
}

// ---- ahead of demand ----

void Reclaimer::begin_turn() { reserve_.begin_turn(); }

std::uint64_t Reclaimer::dirty_bytes() const {
  const std::uint64_t taken = deps_.pool.blob_bytes() + deps_.pool.leased_bytes() + deps_.pool.fixed_bytes();
  const std::uint64_t clean = deps_.blobs.clean_bytes();
  return taken > clean ? taken - clean : 0;
}

// Writes copies ahead of demand, so that memory can be freed at once when needed. What is written stays resident.
void Reclaimer::write_back() {
  const std::uint64_t percent = deps_.pool.limit_bytes() / 100;
  const std::uint64_t dirty = dirty_bytes();
  const std::uint64_t being_written = deps_.writer.bytes_in_flight();
  if (dirty > percent * deps_.high_percent) writes_back_ = true;
  if (dirty - std::min(dirty, being_written) <= percent * deps_.low_percent) writes_back_ = false;
  if (!writes_back_ || being_written > kMaxWritingBytes / 2) return;
  const std::uint64_t now = deps_.clock.monotonic_ns();
  if (deps_.writer.is_paused(now) || now < next_write_back_ns_) return;
  deps_.prefetcher.apply_read_log();
  EvictionPolicy& policy = deps_.candidates.policy();
  std::uint64_t quota_left = deps_.writer.quota_left();
  const auto allowed = [&](std::uint32_t slot) {
    return !deps_.residency.is_clean(slot) && !policy.is_dead(slot) && !deps_.writer.is_writing(slot) &&
           deps_.writer.unwritten_bytes(slot) <= quota_left;
  };
  const std::uint64_t excess = dirty - percent * deps_.low_percent;
  bool writes = false;
  for (const std::uint32_t slot : policy.victims(std::min(excess, kMaxWritingBytes), now, allowed)) {
    if (deps_.writer.bytes_in_flight() > kMaxWritingBytes || deps_.writer.is_paused(now)) return;
    if (policy.is_cheaper_to_drop(slot, now)) continue;  // it leaves without a copy
    const std::uint64_t bytes = deps_.writer.unwritten_bytes(slot);
    if (bytes > quota_left) continue;
    deps_.writer.write(slot);
    quota_left -= bytes;
    writes = true;
  }
  if (!writes) next_write_back_ns_ = now + kWriteBackIntervalNs;
}

// ---- figures ----

std::uint64_t Reclaimer::spillable_bytes() const {
  if (!deps_.spills) return 0;
  const DirectoryWriter& directory = deps_.catalog.directory();
  std::uint64_t pinned_bytes = 0;
  for (const std::uint32_t slot : deps_.candidates.pinned_slots()) {
    if (slot < directory.size() && directory.is_findable(slot)) pinned_bytes += deps_.residency.resident_bytes(slot);
  }
  const std::uint64_t resident = deps_.pool.blob_bytes();
  return resident > pinned_bytes ? resident - pinned_bytes : 0;
}

}  // namespace entrepot
