// Loading: requests that wait for memory, then for their reads.
#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "store/paging/pager.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kNoEvictNs = 250'000'000;  // for the requester to pin what was loaded
constexpr std::size_t kMaxFailures = 1024;         // not yet reported

}  // namespace

void Pager::load(std::uint32_t slot, std::uint32_t reader) {
  if (objects_->is_resident(slot)) return;
  if (enabled()) {
    apply_read_log();  // earlier reads, to keep their order
    record_use(slot, reader);
  }
  const auto in_progress = loads_.find(slot);
  if (in_progress != loads_.end() && !in_progress->second.is_prefetch) return;
  failures_.erase(objects_->directory().at(slot).id);
  if (!enabled())
    return fail_load(slot, Status(Code::kObjectLost,
                                  "the object was spilled, but this daemon has no spill folder; set --spill-path"));
  if (in_progress == loads_.end()) {
    loads_.emplace(slot, Load{objects_->directory().generation(slot), {}, {}, true, false});
  } else {
    in_progress->second.is_prefetch = false;  // a reader requests it now
    if (!in_progress->second.queued) return;
  }
  queue_.push_back(slot);
  try_loads();
}

void Pager::try_loads() {
  while (!queue_.empty()) {
    const std::uint32_t slot = queue_.front();
    const auto it = loads_.find(slot);
    if (it == loads_.end() || !it->second.queued) {
      queue_.pop_front();
      continue;
    }
    if (!allocate_all(slot, it->second)) {
      if (!loads_.contains(slot)) continue;  // it failed, and was dropped
      cancel_queued_prefetches();
      return;  // later requests do not overtake it
    }
    queue_.pop_front();
    it->second.queued = false;
    begin_reads(slot, it->second);
  }
}

// Takes ranges for all blobs that are neither resident nor being read, before starting any read, so that two
// half-loaded objects cannot wait for each other's memory.
bool Pager::allocate_all(std::uint32_t slot, Load& load) {
  const BlobWriter& blobs = objects_->blobs();
  for (const std::uint32_t blob : objects_->blobs_of(slot)) {
    if (blobs.is_resident(blob) || blobs_read_.contains(blob) || load.places.contains(blob)) continue;
    const std::uint64_t bytes = blobs.place(blob).length;
    while (true) {
      Result<std::optional<BlobLocation>> place = pool_->allocate_for_load(bytes, load.wait);
      if (!place.is_ok()) {
        if (load.is_prefetch) {
          drop_load(slot);
        } else {
          fail_load(slot, place.status());
        }
        return false;
      }
      if (place->has_value()) {
        load.places.emplace(blob, **place);
        break;
      }
      const Purpose purpose = load.is_prefetch ? Purpose::kPrefetch : Purpose::kLoad;
      if (load.wait.segment != kNoSegment || !reclaim(bytes, purpose)) return false;
    }
  }
  return true;
}

// The segment's number may be reused from now on, so the load looks for another range.
void Pager::provision_failed(std::uint32_t segment) {
  for (auto& [slot, load] : loads_) {
    if (load.wait.segment == segment) load.wait.segment = kNoSegment;
  }
}

void Pager::begin_reads(std::uint32_t slot, Load& load) {
  const BlobWriter& blobs = objects_->blobs();
  Status failure;
  for (const auto& [blob, place] : std::exchange(load.places, {})) {
    const std::uint64_t ticket = next_ticket_++;
    if (failure.is_ok()) failure = spill_->read(ticket, blobs.key(blob), blobs.copy(blob), place);
    if (!failure.is_ok()) {
      pool_->free_blob_range(place.segment, place.offset, place.length);
      continue;
    }
    objects_->retain_blob(blob);
    read_rate_.begin(clock_->monotonic_ns());
    blobs_read_.insert(blob);
    reads_.emplace(ticket, Read{blob, place, load.is_prefetch});
    if (load.is_prefetch) prefetch_bytes_ += place.length;
  }
  if (!failure.is_ok()) fail_load(slot, failure);
}

void Pager::on_read_done(const Read& read, const SpillCompletion& done) {
  blobs_read_.erase(read.blob);
  read_rate_.end(clock_->monotonic_ns(), done.status.is_ok() ? read.place.length : 0);
  update_measured_costs();
  prefetch_stale_ = true;
  if (read.is_prefetch) prefetch_bytes_ -= read.place.length;
  const bool still_referenced = objects_->blobs().references(read.blob) > 1;  // by more than this read
  if (!still_referenced || !done.status.is_ok()) {
    pool_->free_blob_range(read.place.segment, read.place.offset, read.place.length);
    if (still_referenced) on_read_failed(read.blob, done.status);
  } else {
    on_loaded(read.blob, read.place);
  }
  objects_->release_blob(read.blob);
}

void Pager::on_loaded(std::uint32_t blob, const BlobLocation& place) {
  stats_.loaded_bytes += place.length;
  const std::uint64_t now = clock_->monotonic_ns();
  const std::vector<std::uint32_t> resident = objects_->on_blob_loaded(blob, place);
  for (const std::uint32_t slot : objects_->referencing_slots(blob)) {
    if (objects_->directory().is_findable(slot)) admit(slot);
  }
  for (const std::uint32_t slot : resident) {
    ++stats_.loads;
    const auto load = loads_.find(slot);
    const bool is_prefetch = load != loads_.end() && load->second.is_prefetch;
    if (is_prefetch) {
      ++stats_.prefetches;
    } else {
      no_evict_until_[slot] = now + kNoEvictNs;
    }
    if (load != loads_.end()) loads_.erase(load);
    notify_changed(objects_->directory().at(slot).id);
  }
}

void Pager::on_read_failed(std::uint32_t blob, const Status& why) {
  ++stats_.failed_reads;
  const bool lost = why.code() == Code::kCorruptData || why.code() == Code::kObjectLost;
  for (const std::uint32_t slot : objects_->referencing_slots(blob)) {
    if (!objects_->directory().is_findable(slot)) continue;
    if (!lost) {
      fail_load(slot, why);
      continue;
    }
    const IdBytes id = objects_->directory().at(slot).id;
    log_error("object ", to_hex(id), ": ", why.message());
    objects_->mark_lost(slot, concat("its copy on disk is damaged (", why.message(), ")"));
    notify_changed(id);
  }
}

void Pager::fail_load(std::uint32_t slot, const Status& why) {
  const IdBytes id = objects_->directory().at(slot).id;
  log_warning("object ", to_hex(id), " could not be reloaded: ", why.message());
  drop_load(slot);
  if (failures_.size() >= kMaxFailures) failures_.clear();
  failures_[id] = why;
  notify_changed(id);
}

void Pager::drop_load(std::uint32_t slot) {
  const auto it = loads_.find(slot);
  if (it == loads_.end()) return;
  Load load = std::move(it->second);
  loads_.erase(it);
  pool_->abandon(load.wait);
  for (const auto& [blob, place] : load.places)
    pool_->free_blob_range(place.segment, place.offset, place.length);
}

Status Pager::take_failure(const IdBytes& id) {
  const auto it = failures_.find(id);
  if (it == failures_.end()) return Status::ok();
  Status failure = std::move(it->second);
  failures_.erase(it);
  return failure;
}

}  // namespace entrepot
