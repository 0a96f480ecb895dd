#include "store/paging/pager.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxWritingBytes = 256U << 20;  // at once, unless a request waits for more
constexpr std::uint64_t kExchangeSlack = 64U << 10;     // headers and rounding on disk
constexpr std::uint64_t kReclaimStep = 32U << 20;
constexpr std::uint64_t kRetryWritesNs = 1'000'000'000;     // after a write failed
constexpr std::uint64_t kWritebackIntervalNs = 10'000'000;  // interval between checks while nothing had to be written

}  // namespace

Pager::Pager(ObjectParts& parts, ObjectTable& objects, ObjectResidency& residency, SegmentPool& pool, PinScanner& pins,
             const LocalitySetTable& sets, SpillBackend* spill, const Clock& clock, const StoreOptions& options)
    : catalog_(&parts.catalog),
      blobs_(&parts.blobs),
      manifest_(&parts.manifest),
      objects_(&objects),
      residency_(&residency),
      pool_(&pool),
      pins_(&pins),
      sets_(&sets),
      spill_(spill),
      clock_(&clock),
      options_(options) {}

void Pager::notify_changed(const IdBytes& id) const {
  if (changed_) changed_(id);
}

// ---- sealing, adoption and end ----

void Pager::admit(std::uint32_t slot) {
  const Slot& entry = catalog_->directory().at(slot);
  policy_.admit(slot, sets_->policy_number(entry.session, entry.locality_set), residency_->resident_bytes(slot),
                clock_->monotonic_ns(), catalog_->directory().generation(slot));
  policy_.set_clean(slot, residency_->is_clean(slot));
  const SlotHints hints = catalog_->directory().hints(slot);
  if (hints.priority != 0) policy_.set_priority(slot, hints.priority);
  if (hints.pinned) {
    policy_.set_pinned(slot, true);
    user_pinned_.insert(slot);
  }
  if (hints.dead) policy_.set_dead(slot, true);
  if (hints.drop_recompute_code() != 0) policy_.set_recompute(slot, hints.drop_recompute_code());
}

void Pager::on_adopted() {
  const DirectoryWriter& directory = catalog_->directory();
  for (std::uint32_t slot = 0; slot < directory.size(); ++slot) {
    if (!directory.is_findable(slot)) continue;
    if (!enabled()) {
      hints_changed(slot);
      continue;
    }
    if (residency_->resident_bytes(slot) != 0) admit(slot);
    track(slot);
    manifest_->remember(slot);  // the previous daemon's last manifest entries may not have reached the disk
  }
}

void Pager::track(std::uint32_t slot) {
  const Slot& entry = catalog_->directory().at(slot);
  if (catalog_->blobs_of(slot).empty()) return;
  read_ahead_.add(slot, sets_->policy_number(entry.session, entry.locality_set),
                  catalog_->directory().generation(slot));
}

void Pager::object_sealed(std::uint32_t slot) {
  if (!enabled()) return;
  admit(slot);
  track(slot);
}

void Pager::object_ended(std::uint32_t slot) {
  policy_.forget(slot);
  user_pinned_.erase(slot);
  if (!enabled()) return;
  no_evict_until_.erase(slot);
  evict_when_clean_.erase(slot);
  prefetch_targets_.erase(slot);
  read_ahead_.remove(slot);
  const bool awaited = loads_.contains(slot);
  drop_load(slot);
  if (awaited) notify_changed(catalog_->directory().at(slot).id);  // readers wait for a load that will not complete
}

void Pager::hints_changed(std::uint32_t slot) {
  const Slot& entry = catalog_->directory().at(slot);
  const SlotHints hints = catalog_->directory().hints(slot);
  // Without a spill backend, only dead or recomputable objects can leave, so the policy knows only those.
  const bool can_go = hints.dead || hints.drop_recompute_code() != 0;
  if (!enabled() && can_go && !policy_.is_admitted(slot) && residency_->resident_bytes(slot) != 0) admit(slot);
  policy_.move(slot, sets_->policy_number(entry.session, entry.locality_set));
  read_ahead_.move(slot, sets_->policy_number(entry.session, entry.locality_set));
  policy_.set_priority(slot, hints.priority);
  policy_.set_pinned(slot, hints.pinned);
  if (hints.pinned) {
    user_pinned_.insert(slot);
  } else {
    user_pinned_.erase(slot);
  }
  policy_.set_dead(slot, hints.dead);
  policy_.set_recompute(slot, hints.drop_recompute_code());
}

bool Pager::is_eviction_blocked(std::uint32_t slot) const {
  const auto it = no_evict_until_.find(slot);
  return it != no_evict_until_.end() && clock_->monotonic_ns() < it->second;
}

std::unordered_set<std::uint32_t> Pager::pinned_slots() const {
  std::unordered_set<std::uint32_t> slots;
  pins_->for_each([&](std::uint32_t, const PinTarget& target) { slots.insert(target.slot); });
  return slots;
}

std::uint64_t Pager::spillable_bytes() const {
  if (!enabled()) return 0;
  const auto pinned = pinned_slots();
  std::uint64_t pinned_bytes = 0;
  for (const std::uint32_t slot : pinned) {
    if (slot < catalog_->directory().size() && catalog_->directory().is_findable(slot)) {
      pinned_bytes += residency_->resident_bytes(slot);
    }
  }
  const std::uint64_t resident = pool_->blob_bytes();
  return resident > pinned_bytes ? resident - pinned_bytes : 0;
}

// ---- eviction ----

void Pager::begin_writes(std::uint32_t slot) {
  const BlobTable& blobs = *blobs_;
  for (const std::uint32_t blob : catalog_->blobs_of(slot)) {
    if (!blobs.is_resident(blob) || blobs.copy(blob) != 0 || blobs_written_.contains(blob)) continue;
    const BlobLocation place = blobs.place(blob);
    const std::uint64_t ticket = next_ticket_++;
    const Status started = spill_->write(ticket, {blob, blobs.generation(blob)}, place);
    if (!started.is_ok()) {
      retry_writes_ns_ = clock_->monotonic_ns() + kRetryWritesNs;
      return;
    }
    blobs_->retain(blob);
    write_rate_.begin(clock_->monotonic_ns());
    blobs_written_.insert(blob);
    writes_.emplace(ticket, Write{blob, place.length});
    writing_bytes_ += place.length;
  }
}

void Pager::on_written(const Write& write, const SpillCompletion& done) {
  blobs_written_.erase(write.blob);
  writing_bytes_ -= write.bytes;
  write_rate_.end(clock_->monotonic_ns(), done.status.is_ok() ? write.bytes : 0);
  update_measured_costs();
  prefetch_stale_ = true;
  if (!done.status.is_ok()) {
    ++stats_.failed_writes;
    retry_writes_ns_ = clock_->monotonic_ns() + kRetryWritesNs;
    if (!std::exchange(write_failing_, true)) {  // log once for a series of failures
      log_warning("cannot write copies to disk: ", done.status.message());
    }
    for (const std::uint32_t slot : blobs_->referencing_slots(write.blob))
      evict_when_clean_.erase(slot);
  } else {
    if (std::exchange(write_failing_, false)) log_info("writing copies to disk works again");
    blobs_->set_copy(write.blob, done.location);
    std::vector<std::uint32_t> leaving;
    for (const std::uint32_t slot : blobs_->referencing_slots(write.blob)) {
      if (!catalog_->directory().is_findable(slot) || !residency_->is_clean(slot)) continue;
      policy_.set_clean(slot, true);
      manifest_->remember(slot);
      if (evict_when_clean_.erase(slot) != 0) leaving.push_back(slot);
    }
    for (const std::uint32_t slot : leaving)
      static_cast<void>(evict(slot).is_ok());  // pinned meanwhile: stays in memory
  }
  blobs_->release(write.blob);
}

bool Pager::drop_dead(std::uint32_t slot) {
  if (!policy_.is_dead(slot)) return false;
  const IdBytes id = catalog_->directory().at(slot).id;
  static_cast<void>(objects_->remove(std::span(&id, 1)));
  ++stats_.dropped_dead;
  return true;
}

Status Pager::evict(std::uint32_t slot) {
  if (!enabled()) {
    return Status(Code::kInvalidArgument, "this store has no spill folder: start it with --spill-path DIR");
  }
  if (catalog_->directory().hints(slot).pinned) {
    return Status(Code::kInvalidArgument, concat("object ", to_hex(catalog_->directory().at(slot).id),
                                                 " is pinned in memory by a user: unpin it first"));
  }
  if (!residency_->is_clean(slot)) {
    if (catalog_->blobs_of(slot).empty()) return Status::ok();  // payload is in its record, and stays
    evict_when_clean_.insert(slot);
    begin_writes(slot);
    return Status::ok();
  }
  largest_spilled_ = std::max(largest_spilled_, residency_->resident_bytes(slot));
  static_cast<void>(evict_slots({slot}));
  return Status::ok();
}

void Pager::apply_read_log() {
  const std::uint64_t now = clock_->monotonic_ns();
  const DirectoryWriter& directory = catalog_->directory();
  pins_->drain([&](std::uint32_t client, const PinTarget& read) {
    if (!directory.is_live(read.slot, read.generation)) return;
    policy_.touch(read.slot, now, client + 1);
    record_use(read.slot, client + 1);
    no_evict_until_.erase(read.slot);  // it was loaded for this reader, who has pinned it
  });
}

bool Pager::reclaim(std::uint64_t bytes, Purpose purpose) {
  if (!enabled() && policy_.size() == 0) return false;
  apply_read_log();
  const auto pinned = pinned_slots();
  const std::uint64_t now = clock_->monotonic_ns();
  std::vector<std::uint32_t> victims = find_victims(std::max(bytes, kReclaimStep), purpose, pinned);
  const auto drops = [this](std::uint32_t slot) { return drop_dead(slot) || (enabled() && drop_if_cheaper(slot)); };
  const bool dropped = std::erase_if(victims, drops) != 0;
  if (!enabled()) return dropped || drop_recomputable(bytes, pinned);
  bool writing = false;
  for (const std::uint32_t slot : victims) {
    if (residency_->is_clean(slot)) continue;
    if (writing_bytes_ < std::max(kMaxWritingBytes, bytes) && now >= retry_writes_ns_) begin_writes(slot);
    writing = writing || is_being_written(slot);
  }
  if (evict_clean(victims, bytes, purpose) || dropped) return true;
  if (writing) return false;  // there will be memory when that is done
  // The preferred victims cannot be written (e.g. disk full) or share blobs with pinned objects: try others.
  const std::unordered_set<std::uint32_t> tried(victims.begin(), victims.end());
  const auto others = [&](std::uint32_t slot) {
    return !pinned.contains(slot) && !is_eviction_blocked(slot) && !loads_.contains(slot) &&
           !prefetch_targets_.contains(slot) && !tried.contains(slot) && residency_->is_clean(slot);
  };
  if (evict_clean(policy_.victims(std::max(bytes, kReclaimStep), now, others), bytes, purpose)) return true;
  return purpose != Purpose::kPrefetch && drop_recomputable(bytes, pinned);
}

// Objects in a run being read ahead are evicted only as a last resort, and never for more read-ahead.
std::vector<std::uint32_t> Pager::find_victims(std::uint64_t bytes, Purpose purpose,
                                               const std::unordered_set<std::uint32_t>& pinned) const {
  const auto find = [&](bool spare_prefetched) {
    return policy_.victims(bytes, clock_->monotonic_ns(), [&](std::uint32_t slot) {
      return !pinned.contains(slot) && !is_eviction_blocked(slot) && !loads_.contains(slot) &&
             !(spare_prefetched && prefetch_targets_.contains(slot));
    });
  };
  std::vector<std::uint32_t> victims = find(true);
  if (victims.empty() && !prefetch_targets_.empty() && purpose != Purpose::kPrefetch) victims = find(false);
  return victims;
}

bool Pager::is_being_written(std::uint32_t slot) const {
  const std::vector<std::uint32_t> blobs = catalog_->blobs_of(slot);
  return std::any_of(blobs.begin(), blobs.end(), [&](auto blob) { return blobs_written_.contains(blob); });
}

// Evicts the clean ones among `slots`, in order, until `enough` bytes are free. Returns whether memory was freed.
bool Pager::evict_clean(const std::vector<std::uint32_t>& slots, std::uint64_t enough, Purpose purpose) {
  std::vector<std::uint32_t> clean;
  std::uint64_t bytes = 0;
  std::uint64_t spare = purpose == Purpose::kNew ? exchangeable_bytes() : UINT64_MAX;
  for (const std::uint32_t slot : slots) {
    if (!residency_->is_clean(slot)) continue;
    const std::uint64_t size = residency_->resident_bytes(slot);
    const std::uint64_t largest = std::max(largest_spilled_, size);
    if (spare < size + largest + largest / 8 + kExchangeSlack) continue;
    spare -= size;
    largest_spilled_ = largest;
    clean.push_back(slot);
    bytes += size;
    if (bytes >= enough) break;
  }
  return !clean.empty() && evict_slots(clean) != 0;
}

// Reloading an object while memory is full requires evicting another one: one with a copy, or one that the spill
// backend has room for. If new values used up both, spilled objects could never be reloaded; this reserve is kept from
// them.
std::uint64_t Pager::exchangeable_bytes() const {
  const SpillStats spill = spill_->stats();
  const bool can_write_more = spill.note.empty() && clock_->monotonic_ns() >= retry_writes_ns_;
  const std::uint64_t room =
      can_write_more && spill.quota_bytes > spill.used_bytes ? spill.quota_bytes - spill.used_bytes : 0;
  return blobs_->clean_bytes() + room;
}

std::uint64_t Pager::evict_slots(const std::vector<std::uint32_t>& slots) {
  const ObjectResidency::Eviction done = residency_->evict(slots);
  for (const std::uint32_t slot : done.evicted) {
    no_evict_until_.erase(slot);
    admit(slot);  // with the part still in memory
  }
  for (const std::uint32_t slot : slots) {
    if (residency_->resident_bytes(slot) == 0) policy_.forget(slot);
  }
  for (const std::uint32_t slot : done.evicted) {
    if (residency_->resident_bytes(slot) == 0) policy_.forget(slot);
  }
  stats_.evictions += done.evicted.size();
  stats_.evicted_bytes += done.bytes;
  return done.bytes;
}

std::uint64_t Pager::dirty_bytes() const {
  const std::uint64_t taken = pool_->blob_bytes() + pool_->leased_bytes() + pool_->record_bytes();
  const std::uint64_t clean = blobs_->clean_bytes();
  return taken > clean ? taken - clean : 0;
}

// Writes copies ahead of demand, so that memory can be freed at once when needed. What is written stays resident.
void Pager::write_back() {
  const std::uint64_t percent = pool_->limit_bytes() / 100;
  const std::uint64_t dirty = dirty_bytes();
  if (dirty > percent * options_.spill_high_percent) background_writeback_ = true;
  if (dirty - std::min(dirty, writing_bytes_) <= percent * options_.spill_low_percent) background_writeback_ = false;
  if (!background_writeback_ || writing_bytes_ > kMaxWritingBytes / 2) return;
  if (clock_->monotonic_ns() < std::max(retry_writes_ns_, next_writeback_ns_)) return;
  apply_read_log();
  const auto allowed = [&](std::uint32_t slot) {
    if (residency_->is_clean(slot) || policy_.is_dead(slot)) return false;
    const std::vector<std::uint32_t> blobs = catalog_->blobs_of(slot);
    return std::none_of(blobs.begin(), blobs.end(), [&](auto blob) { return blobs_written_.contains(blob); });
  };
  const std::uint64_t excess = dirty - percent * options_.spill_low_percent;
  const std::uint64_t now = clock_->monotonic_ns();
  bool writes = false;
  bool spared = false;
  for (const std::uint32_t slot : policy_.victims(std::min(excess, kMaxWritingBytes), now, allowed)) {
    if (writing_bytes_ > kMaxWritingBytes || now < retry_writes_ns_) return;
    if (policy_.is_cheaper_to_drop(slot, now)) {  // it leaves without a copy
      spared = true;
      continue;
    }
    begin_writes(slot);
    writes = true;
  }
  if (spared && !writes) next_writeback_ns_ = now + kWritebackIntervalNs;
}

// ---- completions and pending work ----

void Pager::take_completions() {
  if (!enabled()) return;
  for (const SpillCompletion& done : spill_->take_completions()) {
    if (done.is_read) {
      const auto it = reads_.find(done.ticket);
      if (it == reads_.end()) continue;
      const Read read = it->second;
      reads_.erase(it);
      on_read_done(read, done);
    } else {
      const auto it = writes_.find(done.ticket);
      if (it == writes_.end()) continue;
      const Write write = it->second;
      writes_.erase(it);
      on_written(write, done);
    }
  }
}

void Pager::run_pending() {
  if (!enabled()) return;
  if (blobs_->spilled_bytes() == 0) largest_spilled_ = 0;
  poll_readers();
  try_loads();
  start_prefetches();
  write_back();
  if (no_evict_until_.size() > 1024) {
    const std::uint64_t now = clock_->monotonic_ns();
    std::erase_if(no_evict_until_, [now](const auto& entry) { return entry.second <= now; });
  }
}

}  // namespace entrepot
