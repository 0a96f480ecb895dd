#include "spill/spill_files.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/log.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kWriteAgainNs = 1'000'000'000;  // after the manifest could not be written

}  // namespace

Result<std::unique_ptr<SpillFiles>> SpillFiles::open(os::FileIo& io, const SpillOptions& options,
                                                     SegmentMappings::Open segments, int event_fd) {
  std::vector<SpillFolder> folders;
  std::optional<std::uint64_t> free_bytes_needed;
  if (options.needs_room) free_bytes_needed = options.limits.reserve_bytes;
  for (const std::string& folder : options.folders) {
    ASSIGN_OR_RETURN(SpillFolder opened,
                     open_spill_folder(io, folder, options.socket_path, free_bytes_needed, options.lock_wait_ms));
    folders.push_back(std::move(opened));
    (void)remove_stale_subfolders(io, folder, os::unix_ns());
  }
  std::unique_ptr<SpillFiles> files(new SpillFiles(io, options, std::move(folders), std::move(segments)));
  RETURN_IF_ERROR(files->begin(event_fd));
  return files;
}

SpillFiles::SpillFiles(os::FileIo& io, const SpillOptions& options, std::vector<SpillFolder> folders,
                       SegmentMappings::Open segments)
    : io_(io),
      options_(options),
      segments_(std::move(segments)),
      space_(io, std::move(folders), options.limits),
      manifest_(io, space_.folders().front().path + "/manifest", options.instance, options.cipher),
      workers_(io, space_, options.packing, [this] { return run_maintenance(); }) {}

SpillFiles::~SpillFiles() { workers_.stop(); }

Status SpillFiles::begin(int event_fd) {
  RETURN_IF_ERROR(space_.open_existing());
  ASSIGN_OR_RETURN(replay_, manifest_.open());
  if (replay_.dropped_bytes > 0) {
    log_warning("the manifest in ", space_.folders().front().path, ": its last ", replay_.dropped_bytes,
                " bytes are discarded: ", replay_.damage);
  }
  for (const RememberedObject& remembered : replay_.objects) {
    for (std::size_t i = 0; i < remembered.object.blobs.size(); ++i) {
      const SpilledBlob& blob = remembered.object.blobs[i];
      const auto place = unpack_location(blob.location, blob.key);
      if (!place.is_ok()) continue;
      const auto& [copy, packed_bytes] = remembered.copies[i];
      if (copy != CopyIdentity{options_.instance, blob.key}) origins_[*place] = copy;
      if (packed_bytes != 0) packed_[*place] = packed_bytes;
      listed_.insert(*place);
    }
  }
  event_fd_ = event_fd;
  threads_status_ = workers_.start(event_fd, options_.threads);
  if (!threads_status_.is_ok()) log_warning("spilling is slow or impossible for now: ", threads_status_.message());
  return Status::ok();
}

std::unique_ptr<SpillTransfer> SpillFiles::transfer_of(std::uint64_t ticket, const BlobKey& blob,
                                                       const BlobLocation& place, BlobBytes bytes) const {
  auto transfer = std::make_unique<SpillTransfer>();
  transfer->ticket = ticket;
  transfer->key = blob;
  transfer->length = place.length;
  transfer->identities = {{options_.instance, blob}};
  transfer->memory = std::move(bytes.memory);
  transfer->data = bytes.data;
  transfer->block_crcs.resize(block_count(place.length));
  transfer->cipher = options_.cipher.get();
  return transfer;
}

std::uint64_t SpillFiles::copy_bytes(std::uint64_t length) const {
  return extent_bytes(length, options_.cipher != nullptr);
}

Status SpillFiles::write(std::uint64_t ticket, const BlobKey& blob, const BlobLocation& from) {
  if (ended_) return Status(Code::kStoreUnavailable, "the store is shutting down and no longer spills");
  if (from.length > kMaxSpillBytes) {
    return Status(Code::kInvalidArgument, concat("a blob of ", format_bytes(from.length), " is too large to spill"));
  }
  RETURN_IF_ERROR(space_.check_quota(copy_bytes(from.length)));
  RETURN_IF_ERROR(workers_.ensure_running());
  ASSIGN_OR_RETURN(BlobBytes bytes, segments_.at(from));
  workers_.add(transfer_of(ticket, blob, from, std::move(bytes)));
  return Status::ok();
}

Status SpillFiles::read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from, const BlobLocation& to) {
  if (ended_) return Status(Code::kStoreUnavailable, "the store is shutting down and no longer reloads");
  RETURN_IF_ERROR(workers_.ensure_running());
  ASSIGN_OR_RETURN(const SpillPosition place, unpack_location(from, blob));
  ASSIGN_OR_RETURN(SpillExtent extent, space_.find(place, extent_of(place, to.length)));
  ASSIGN_OR_RETURN(BlobBytes bytes, segments_.at(to));
  auto transfer = transfer_of(ticket, blob, to, std::move(bytes));
  transfer->is_read = true;
  if (packed_.contains(place)) transfer->codec = SpillCodec::kZstd;  // or another: its header says which
  transfer->extent = std::move(extent);
  if (const auto origin = origins_.find(place); origin != origins_.end()) {
    transfer->identities.push_back(origin->second);
  }
  workers_.add(std::move(transfer));
  return Status::ok();
}

void SpillFiles::release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) {
  const auto place = unpack_location(copy, blob);
  if (!place.is_ok()) {
    log_error("cannot release a copy: ", place.status().message());
    return;
  }
  // Until the manifest records that the object is forgotten, the copy's bytes stay unchanged.
  released_.push_back({manifest_.appended(), *place, extent_of(*place, length)});
  packed_.erase(*place);
  free_released();
}

void SpillFiles::free_released() {
  const std::uint64_t written = manifest_.written();
  while (!released_.empty() && released_.front().record <= written) {
    const Released released = released_.front();
    released_.pop_front();
    free_extent(released.place, released.bytes);
  }
  if (space_.wants_sweep()) workers_.request_maintenance();
}

void SpillFiles::free_extent(const SpillPosition& place, std::uint64_t bytes) {
  origins_.erase(place);
  if (const Status freed = space_.release(place, bytes); !freed.is_ok()) {
    log_error("cannot release a copy: ", freed.message());
  }
}

std::vector<SpillCompletion> SpillFiles::take_completions() {
  free_released();
  std::vector<SpillCompletion> completions;
  for (SpillWorkers::Finished& finished : workers_.take_finished()) {
    if (finished.extent_used != 0 && finished.completion.status.is_ok()) {
      packed_[position_in(finished.completion.location)] = finished.extent_used;
    }
    completions.push_back(std::move(finished.completion));
  }
  return completions;
}

// Runs on a worker. The event wakes the daemon's thread, which frees what the manifest no longer lists, and answers the
// requests that wait for the manifest: so it comes before the sweep, which may take long.
std::uint64_t SpillFiles::run_maintenance() {
  const std::uint64_t before = manifest_.written();
  if (space_.take_first_folder_recreated()) manifest_.rewrite_on_flush();
  const bool flushed = manifest_.flush();
  if (manifest_.written() != before) os::signal_event(event_fd_);
  const std::uint64_t next_sweep = space_.sweep();
  return flushed ? next_sweep : std::min(next_sweep, os::monotonic_ns() + kWriteAgainNs);
}

Status SpillFiles::adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) {
  ASSIGN_OR_RETURN(const SpillPosition place, unpack_location(copy, blob));
  if (!listed_.contains(place)) detect_packed(place, length);
  return space_.adopt(place, extent_of(place, length));
}

std::uint64_t SpillFiles::extent_of(const SpillPosition& place, std::uint64_t length) const {
  const auto packed = packed_.find(place);
  return packed == packed_.end() ? copy_bytes(length) : packed->second;
}

// For a copy that was complete when a daemon died, of an object not yet in the manifest: reads its header. If that is
// unreadable, the error surfaces when the copy is read.
void SpillFiles::detect_packed(const SpillPosition& place, std::uint64_t length) {
  os::AlignedBuffer buffer;
  const bool encrypted = options_.cipher != nullptr;
  const std::uint64_t bytes = header_bytes(length, encrypted);
  const auto extent = space_.find(place, bytes);
  if (!extent.is_ok() || !buffer.ensure(bytes).is_ok()) return;
  const os::IoPiece piece{buffer.data(), bytes};
  if (!os::read_fully(io_, extent->file->fd.get(), {&piece, 1}, place.offset).is_ok()) return;
  const auto header = decode_header({buffer.data(), bytes}, length, encrypted);
  if (header.is_ok() && header->codec != SpillCodec::kNone) packed_[place] = packed_extent_bytes(*header);
}

Result<SpillLocation> SpillFiles::rebind(const SpilledBlob& old, const BlobKey& new_key) {
  ASSIGN_OR_RETURN(const SpillPosition place, unpack_location(old.location, old.key));
  RETURN_IF_ERROR(space_.adopt(place, extent_of(place, old.length)));
  // Where the manifest names an even earlier store, the replay has set the origin already.
  origins_.try_emplace(place, CopyIdentity{replay_.instance, old.key});
  return pack_location(place, new_key);
}

std::vector<SpilledObject> SpillFiles::recover() {
  std::vector<SpilledObject> objects;
  manifest_.begin_new();
  for (const RememberedObject& remembered : replay_.objects)
    objects.push_back(remembered.object);
  return objects;
}

std::uint64_t SpillFiles::adopt_end() {
  // A daemon may die between the end of an object and the record of it, so what was not adopted does not exist.
  const bool same_store = replay_.exists && replay_.instance == options_.instance;
  if (replay_.exists && !same_store) manifest_.begin_new();
  if (same_store) {
    for (const RememberedObject& remembered : replay_.objects) {
      for (const SpilledBlob& blob : remembered.object.blobs) {
        const auto place = unpack_location(blob.location, blob.key);
        if (place.is_ok() && space_.is_used(*place)) continue;
        (void)manifest_.forget(remembered.object.id, remembered.object.generation);
        break;
      }
    }
  }
  std::erase_if(origins_, [this](const auto& entry) { return !space_.is_used(entry.first); });
  std::erase_if(packed_, [this](const auto& entry) { return !space_.is_used(entry.first); });
  listed_.clear();
  space_.adopt_end();
  const std::uint64_t record = manifest_.finish_new();
  replay_ = {};
  workers_.request_maintenance();
  return record;
}

std::uint64_t SpillFiles::remember(const SpilledObject& object) {
  RememberedObject remembered{object, {}};
  for (const SpilledBlob& blob : object.blobs) {
    CopyIdentity copy{options_.instance, blob.key};
    const auto place = unpack_location(blob.location, blob.key);
    if (!place.is_ok()) {
      log_error("cannot record a spilled object: ", place.status().message());
      return manifest_.appended();
    }
    if (const auto origin = origins_.find(*place); origin != origins_.end()) copy = origin->second;
    const auto packed = packed_.find(*place);
    remembered.copies.push_back({copy, packed == packed_.end() ? 0 : packed->second});
  }
  const std::uint64_t record = manifest_.remember(remembered);
  workers_.request_maintenance();
  return record;
}

std::uint64_t SpillFiles::forget(const IdBytes& id, std::uint32_t generation) {
  const std::uint64_t record = manifest_.forget(id, generation);
  workers_.request_maintenance();
  return record;
}

void SpillFiles::discard_all() {
  if (std::exchange(ended_, true)) return;
  workers_.stop();
  space_.remove_all();
}

SpillStats SpillFiles::stats() const {
  const SpillTotals totals = workers_.totals();
  SpillStats stats;
  stats.used_bytes = space_.used_bytes();
  stats.quota_bytes = options_.limits.quota_bytes;
  stats.written_bytes = totals.written_bytes;
  stats.stored_bytes = totals.stored_bytes;
  stats.packing = to_text(options_.packing);
  if (options_.cipher != nullptr) stats.key_id = to_hex(options_.cipher->key_id());
  stats.read_bytes = totals.read_bytes;
  stats.pending_writes = totals.pending_writes;
  stats.pending_reads = totals.pending_reads;
  const std::uint64_t recorded = manifest_.written();  // read first: it lags behind appended()
  stats.unrecorded = manifest_.appended() - recorded;
  stats.folders = options_.folders;
  stats.note = space_.note().empty() ? manifest_.note() : space_.note();
  return stats;
}

bool SpillFiles::is_drained() const {
  return !workers_.maintenance_is_pending() && manifest_.written() == manifest_.appended() && released_.empty() &&
         !space_.wants_sweep();
}

}  // namespace entrepot
