// Loading: requests that wait for memory, then for their reads.
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "store/pager.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHoldNs = 250'000'000;  // for the requester to pin what was loaded
constexpr std::size_t kMostFailures = 1024;     // not yet asked for

}  // namespace

void Pager::load(std::uint32_t slot, std::uint32_t reader) {
  if (objects_->is_resident(slot)) return;
  if (enabled()) {
    note_reads();  // earlier reads, to keep their order
    used(slot, reader);
  }
  const auto on_its_way = loads_.find(slot);
  if (on_its_way != loads_.end() && !on_its_way->second.ahead) return;
  failures_.erase(objects_->directory().at(slot).id);
  if (!enabled()) return fail(slot, Status(Code::kObjectLost, "it lies in cold storage, and this daemon has none"));
  if (on_its_way == loads_.end()) {
    loads_.emplace(slot, Load{objects_->directory().generation(slot), {}, {}, true, false});
  } else {
    on_its_way->second.ahead = false;  // a reader asks for it now
    if (!on_its_way->second.queued) return;
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
    if (!place_all(slot, it->second)) {
      if (!loads_.contains(slot)) continue;  // it failed, and was dropped
      drop_waiting_ahead();
      return;  // later requests do not overtake it
    }
    queue_.pop_front();
    it->second.queued = false;
    begin_reads(slot, it->second);
  }
}

// Takes ranges for all blobs that are neither resident nor being read, before starting any read, so that two
// half-loaded objects cannot wait for each other's memory.
bool Pager::place_all(std::uint32_t slot, Load& load) {
  const BlobWriter& blobs = objects_->blobs();
  for (const std::uint32_t blob : objects_->blobs_of(slot)) {
    if (blobs.is_resident(blob) || blobs_read_.contains(blob) || load.places.contains(blob)) continue;
    const std::uint64_t bytes = blobs.place(blob).length;
    while (true) {
      Result<std::optional<BlobPlace>> place = pool_->place_for_load(bytes, load.wait);
      if (!place.is_ok()) {
        if (load.ahead) {
          drop_load(slot);
        } else {
          fail(slot, place.status());
        }
        return false;
      }
      if (place->has_value()) {
        load.places.emplace(blob, **place);
        break;
      }
      const Purpose purpose = load.ahead ? Purpose::kAhead : Purpose::kLoad;
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
    if (failure.is_ok()) failure = cold_->read(ticket, blobs.key(blob), blobs.copy(blob), place);
    if (!failure.is_ok()) {
      pool_->release_blob(place.segment, place.offset, place.length);
      continue;
    }
    objects_->hold_blob(blob);
    read_rate_.begin(clock_->monotonic_ns());
    blobs_read_.insert(blob);
    reads_.emplace(ticket, Read{blob, place, load.ahead});
    if (load.ahead) ahead_bytes_ += place.length;
  }
  if (!failure.is_ok()) fail(slot, failure);
}

void Pager::read_done(const Read& read, const SpillCompletion& done) {
  blobs_read_.erase(read.blob);
  read_rate_.end(clock_->monotonic_ns(), done.status.is_ok() ? read.place.length : 0);
  measured();
  ahead_stale_ = true;
  if (read.ahead) ahead_bytes_ -= read.place.length;
  const bool wanted = objects_->blobs().references(read.blob) > 1;  // by more than this read
  if (!wanted || !done.status.is_ok()) {
    pool_->release_blob(read.place.segment, read.place.offset, read.place.length);
    if (wanted) read_failed(read.blob, done.status);
  } else {
    arrived(read.blob, read.place);
  }
  objects_->let_go_blob(read.blob);
}

void Pager::arrived(std::uint32_t blob, const BlobPlace& place) {
  figures_.loaded_bytes += place.length;
  const std::uint64_t now = clock_->monotonic_ns();
  const std::vector<std::uint32_t> resident = objects_->blob_arrived(blob, place);
  for (const std::uint32_t slot : objects_->users_of(blob)) {
    if (objects_->directory().is_findable(slot)) admit(slot);
  }
  for (const std::uint32_t slot : resident) {
    ++figures_.loads;
    const auto load = loads_.find(slot);
    const bool ahead = load != loads_.end() && load->second.ahead;
    if (ahead) {
      ++figures_.loads_ahead;
    } else {
      held_until_[slot] = now + kHoldNs;
    }
    if (load != loads_.end()) loads_.erase(load);
    tell(objects_->directory().at(slot).id);
  }
}

void Pager::read_failed(std::uint32_t blob, const Status& why) {
  ++figures_.failed_reads;
  const bool lost = why.code() == Code::kCorruptData || why.code() == Code::kObjectLost;
  for (const std::uint32_t slot : objects_->users_of(blob)) {
    if (!objects_->directory().is_findable(slot)) continue;
    if (!lost) {
      fail(slot, why);
      continue;
    }
    const IdBytes id = objects_->directory().at(slot).id;
    log_error("object ", to_hex(id), ": ", why.message());
    objects_->lose(slot, concat("its copy on disk is damaged (", why.message(), ")"));
    tell(id);
  }
}

void Pager::fail(std::uint32_t slot, const Status& why) {
  const IdBytes id = objects_->directory().at(slot).id;
  log_warning("object ", to_hex(id), " could not be brought back: ", why.message());
  drop_load(slot);
  if (failures_.size() >= kMostFailures) failures_.clear();
  failures_[id] = why;
  tell(id);
}

void Pager::drop_load(std::uint32_t slot) {
  const auto it = loads_.find(slot);
  if (it == loads_.end()) return;
  Load load = std::move(it->second);
  loads_.erase(it);
  pool_->abandon(load.wait);
  for (const auto& [blob, place] : load.places)
    pool_->release_blob(place.segment, place.offset, place.length);
}

Status Pager::take_failure(const IdBytes& id) {
  const auto it = failures_.find(id);
  if (it == failures_.end()) return Status::ok();
  Status failure = std::move(it->second);
  failures_.erase(it);
  return failure;
}

}  // namespace entrepot
