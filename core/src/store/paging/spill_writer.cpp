#include "store/paging/spill_writer.h"

#include <algorithm>
#include <utility>

#include "os/log.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kPauseNs = 1'000'000'000;

}  // namespace

// The daemon ends, and writes may be in progress: their blobs stay as they are.
SpillWriter::~SpillWriter() {
  for (auto& [ticket, write] : writes_)
    write.blob.detach();
}

void SpillWriter::pause() { paused_until_ns_ = deps_.clock.monotonic_ns() + kPauseNs; }

bool SpillWriter::needs_write(std::uint32_t blob) const {
  return deps_.blobs.is_resident(blob) && deps_.blobs.copy(blob) == 0 && !blobs_.contains(blob);
}

void SpillWriter::write(std::uint32_t slot) {
  const BlobTable& blobs = deps_.blobs;
  for (const std::uint32_t blob : deps_.catalog.blobs_of(slot)) {
    if (!needs_write(blob)) continue;
    const BlobLocation place = blobs.place(blob);
    BlobRef ref = deps_.blobs.retain(blob);
    const std::uint64_t ticket = next_ticket_++;
    if (!deps_.spill->write(ticket, blobs.key(blob), place).is_ok()) return pause();
    rate_.begin(deps_.clock.monotonic_ns());
    blobs_.insert(blob);
    writes_.emplace(ticket, Write{std::move(ref), place.length});
    bytes_in_flight_ += place.length;
  }
}

void SpillWriter::write_to_evict(std::uint32_t slot) {
  leaving_.insert(slot);
  write(slot);
}

std::uint64_t SpillWriter::next_retry_ns() const {
  return leaving_.empty() || !is_idle() ? UINT64_MAX : paused_until_ns_;
}

std::vector<std::uint32_t> SpillWriter::retry_leaving() {
  std::vector<std::uint32_t> clean;
  if (next_retry_ns() > deps_.clock.monotonic_ns()) return clean;
  for (const std::uint32_t slot : leaving_) {
    if (deps_.residency.is_clean(slot)) {
      clean.push_back(slot);
    } else if (!is_paused(deps_.clock.monotonic_ns())) {
      write(slot);
    }
  }
  for (const std::uint32_t slot : clean)
    leaving_.erase(slot);
  return clean;
}

SpillWriter::Written SpillWriter::complete(const SpillCompletion& done) {
  const auto it = writes_.find(done.ticket);
  if (it == writes_.end()) return {};
  Write write = std::move(it->second);
  writes_.erase(it);
  blobs_.erase(write.blob.blob());
  bytes_in_flight_ -= write.bytes;
  rate_.end(deps_.clock.monotonic_ns(), done.status.is_ok() ? write.bytes : 0);
  Written written;
  if (done.status.is_ok()) {
    written = on_written(write, done.location);
  } else {
    on_failed(done.status);
  }
  write.blob.release();  // here and not in its destructor, which a simulated death could not leave
  return written;
}

SpillWriter::Written SpillWriter::on_written(const Write& write, SpillLocation copy) {
  if (std::exchange(failing_, false)) log_info("writing copies to disk works again");
  deps_.blobs.set_copy(write.blob.blob(), copy);
  Written written;
  for (const std::uint32_t slot : deps_.blobs.referencing_slots(write.blob.blob())) {
    if (!deps_.catalog.directory().is_findable(slot) || !deps_.residency.is_clean(slot)) continue;
    deps_.manifest.remember(slot);
    written.clean.push_back(slot);
    if (leaving_.erase(slot) != 0) written.leaving.push_back(slot);
  }
  return written;
}

void SpillWriter::on_failed(const Status& why) {
  ++failed_writes_;
  pause();
  if (!std::exchange(failing_, true)) {  // log once for a series of failures
    log_warning("cannot write copies to disk: ", why.message());
  }
}

bool SpillWriter::is_writing(std::uint32_t slot) const {
  const std::vector<std::uint32_t> blobs = deps_.catalog.blobs_of(slot);
  return std::any_of(blobs.begin(), blobs.end(), [&](auto blob) { return blobs_.contains(blob); });
}

bool SpillWriter::can_write() const {
  return deps_.spill != nullptr && !is_paused(deps_.clock.monotonic_ns()) && deps_.spill->stats().note.empty();
}

std::uint64_t SpillWriter::room_bytes() const {
  if (!can_write()) return 0;
  const SpillStats spill = deps_.spill->stats();
  return spill.quota_bytes - std::min(spill.quota_bytes, spill.used_bytes);
}

// A write takes its part of the quota at some time while it is in progress.
std::uint64_t SpillWriter::quota_left() const {
  if (deps_.spill == nullptr) return 0;
  const SpillStats spill = deps_.spill->stats();
  const std::uint64_t taken = spill.used_bytes + bytes_in_flight_;
  return spill.quota_bytes - std::min(spill.quota_bytes, taken);
}

std::uint64_t SpillWriter::unwritten_bytes(std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t blob : deps_.catalog.blobs_of(slot)) {
    if (needs_write(blob)) bytes += deps_.spill->copy_bytes(deps_.blobs.place(blob).length);
  }
  return bytes;
}

}  // namespace entrepot
