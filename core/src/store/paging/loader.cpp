#include "store/paging/loader.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/log.h"

namespace entrepot {
namespace {

constexpr std::size_t kMaxFailures = 1024;  // not yet reported

}  // namespace

// The daemon ends, and reads may be in progress: their blobs stay as they are.
Loader::~Loader() {
  for (auto& [ticket, read] : reads_)
    read.blob.detach();
}

void Loader::notify_changed(const IdBytes& id) const {
  if (changed_) changed_(id);
}

// ---- requests ----

void Loader::load(std::uint32_t slot) {
  if (deps_.catalog.is_resident(slot)) return;
  const auto in_progress = loads_.find(slot);
  if (in_progress != loads_.end() && !in_progress->second.ahead) return;
  failures_.erase(deps_.catalog.directory().at(slot).id);
  if (deps_.spill == nullptr)
    return fail_load(slot, Status(Code::kObjectLost,
                                  "the object was spilled, but this daemon has no spill folder; set --spill-path"));
  if (in_progress == loads_.end()) {
    loads_.emplace(slot, Load{});
  } else {
    in_progress->second.ahead = false;  // a reader requests it now
    if (!in_progress->second.waiting) return;
  }
  queue_.push_back(slot);
  try_waiting();
}

Loader::Ahead Loader::load_ahead(std::uint32_t slot) {
  auto it = loads_.find(slot);
  if (it != loads_.end() && (!it->second.ahead || !it->second.waiting)) return Ahead::kLoading;
  if (it == loads_.end()) {
    it = loads_.emplace(slot, Load{}).first;
    it->second.ahead = true;
  }
  if (!allocate_all(slot, it->second)) {
    it = loads_.find(slot);
    if (it == loads_.end()) return Ahead::kNoRoom;
    if (it->second.wait.segment != kNoSegment) return Ahead::kWaiting;
    drop_load(slot);  // it keeps no memory while waiting
    return Ahead::kNoRoom;
  }
  it->second.waiting = false;
  begin_reads(slot, it->second);
  return Ahead::kLoading;
}

void Loader::cancel_waiting_ahead(const std::unordered_set<std::uint32_t>& kept) {
  std::vector<std::uint32_t> cancelled;
  for (const auto& [slot, load] : loads_) {
    if (load.ahead && load.waiting && !kept.contains(slot)) cancelled.push_back(slot);
  }
  for (const std::uint32_t slot : cancelled)
    drop_load(slot);
}

void Loader::try_waiting() {
  while (!queue_.empty()) {
    const std::uint32_t slot = queue_.front();
    const auto it = loads_.find(slot);
    if (it == loads_.end() || !it->second.waiting) {
      queue_.pop_front();
      continue;
    }
    if (!allocate_all(slot, it->second)) {
      if (!loads_.contains(slot)) continue;  // it failed, and was dropped
      cancel_waiting_ahead({});              // they must not hold any memory
      return;                                // later requests do not overtake it
    }
    queue_.pop_front();
    it->second.waiting = false;
    begin_reads(slot, it->second);
  }
}

void Loader::object_ended(std::uint32_t slot) {
  const bool awaited = loads_.contains(slot);
  drop_load(slot);
  if (awaited) notify_changed(deps_.catalog.directory().at(slot).id);  // its load will not complete
}

// Takes ranges for all blobs that are neither resident nor being read, before starting any read, so that two
// half-loaded objects cannot wait for each other's memory.
bool Loader::allocate_all(std::uint32_t slot, Load& load) {
  const BlobTable& blobs = deps_.blobs;
  for (const std::uint32_t blob : deps_.catalog.blobs_of(slot)) {
    if (blobs.is_resident(blob) || blobs_.contains(blob) || load.places.contains(blob)) continue;
    const std::uint64_t bytes = blobs.place(blob).length;
    while (true) {
      Result<std::optional<BlobLocation>> place = deps_.pool.allocate_for_load(bytes, load.wait);
      if (!place.is_ok()) {
        if (load.ahead) {
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
      if (load.wait.segment != kNoSegment || !deps_.make_room(bytes, load.ahead)) return false;
    }
  }
  return true;
}

// The segment's number may be reused from now on, so the load looks for another range.
void Loader::provision_failed(std::uint32_t segment) {
  for (auto& [slot, load] : loads_) {
    if (load.wait.segment == segment) load.wait.segment = kNoSegment;
  }
}

void Loader::begin_reads(std::uint32_t slot, Load& load) {
  const BlobTable& blobs = deps_.blobs;
  Status failure;
  for (const auto& [blob, place] : std::exchange(load.places, {})) {
    BlobRef ref = deps_.blobs.retain(blob);
    const std::uint64_t ticket = next_ticket_++;
    if (failure.is_ok()) failure = deps_.spill->read(ticket, blobs.key(blob), blobs.copy(blob), place);
    if (!failure.is_ok()) {
      deps_.pool.free_blob_range(place.segment, place.offset, place.length);
      continue;
    }
    rate_.begin(deps_.clock.monotonic_ns());
    blobs_.insert(blob);
    reads_.emplace(ticket, Read{std::move(ref), place, load.ahead});
    if (load.ahead) bytes_ahead_ += place.length;
  }
  if (!failure.is_ok()) fail_load(slot, failure);
}

// ---- reads ----

void Loader::complete(const SpillCompletion& done) {
  const auto it = reads_.find(done.ticket);
  if (it == reads_.end()) return;
  Read read = std::move(it->second);
  const std::uint32_t blob = read.blob.blob();
  reads_.erase(it);
  blobs_.erase(blob);
  rate_.end(deps_.clock.monotonic_ns(), done.status.is_ok() ? read.place.length : 0);
  if (read.ahead) bytes_ahead_ -= read.place.length;
  const bool still_referenced = deps_.blobs.references(blob) > 1;  // by more than this read
  if (!still_referenced || !done.status.is_ok()) {
    deps_.pool.free_blob_range(read.place.segment, read.place.offset, read.place.length);
    if (still_referenced) on_read_failed(blob, done.status);
  } else {
    on_loaded(blob, read.place);
  }
  read.blob.release();  // here and not in its destructor, which a simulated death could not leave
}

void Loader::on_loaded(std::uint32_t blob, const BlobLocation& place) {
  stats_.loaded_bytes += place.length;
  const std::vector<std::uint32_t> resident = deps_.residency.on_blob_loaded(blob, place);
  for (const std::uint32_t slot : deps_.blobs.referencing_slots(blob)) {
    if (deps_.catalog.directory().is_findable(slot)) deps_.candidates.admit(slot);
  }
  for (const std::uint32_t slot : resident) {
    ++stats_.loads;
    const auto load = loads_.find(slot);
    if (load != loads_.end() && load->second.ahead) {
      ++stats_.prefetches;
    } else {
      deps_.candidates.hold(slot);
    }
    if (load != loads_.end()) loads_.erase(load);
    notify_changed(deps_.catalog.directory().at(slot).id);
  }
}

void Loader::on_read_failed(std::uint32_t blob, const Status& why) {
  ++stats_.failed_reads;
  const bool lost = why.code() == Code::kCorruptData || why.code() == Code::kObjectLost;
  for (const std::uint32_t slot : deps_.blobs.referencing_slots(blob)) {
    if (!deps_.catalog.directory().is_findable(slot)) continue;
    if (!lost) {
      if (loads_.contains(slot)) fail_load(slot, why);
      continue;
    }
    const IdBytes id = deps_.catalog.directory().at(slot).id;
    log_error("object ", to_hex(id), ": ", why.message());
    deps_.residency.mark_lost(slot, concat("its copy on disk is damaged (", why.message(), ")"));
    notify_changed(id);
  }
}

void Loader::fail_load(std::uint32_t slot, const Status& why) {
  const IdBytes id = deps_.catalog.directory().at(slot).id;
  log_warning("object ", to_hex(id), " could not be reloaded: ", why.message());
  const auto load = loads_.find(slot);
  const bool requested = load == loads_.end() || !load->second.ahead;
  drop_load(slot);
  if (requested) {  // a later reader starts a load of its own and hears of that one
    if (failures_.size() >= kMaxFailures) failures_.clear();
    failures_[id] = why;
  }
  notify_changed(id);
}

void Loader::drop_load(std::uint32_t slot) {
  const auto it = loads_.find(slot);
  if (it == loads_.end()) return;
  Load load = std::move(it->second);
  loads_.erase(it);
  deps_.pool.abandon(load.wait);
  for (const auto& [blob, place] : load.places)
    deps_.pool.free_blob_range(place.segment, place.offset, place.length);
}

Status Loader::take_failure(const IdBytes& id) {
  const auto it = failures_.find(id);
  if (it == failures_.end()) return Status::ok();
  Status failure = std::move(it->second);
  failures_.erase(it);
  return failure;
}

}  // namespace entrepot
