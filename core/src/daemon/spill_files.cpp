#include "daemon/spill_files.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/events.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kWriteAgainNs = 1'000'000'000;  // after the manifest could not be written

}  // namespace

Result<std::unique_ptr<SpillFiles>> SpillFiles::open(os::FileIo& io, const SpillOptions& options,
                                                     SegmentMemory::Open segments, int event_fd) {
  std::vector<SpillFolder> folders;
  for (const std::string& folder : options.folders) {
    ASSIGN_OR_RETURN(SpillFolder opened, open_spill_folder(io, folder, options.socket_path,
                                                           options.limits.reserve_bytes, options.patience_ms));
    folders.push_back(std::move(opened));
    (void)remove_stale_subfolders(io, folder, os::unix_ns());
  }
  std::unique_ptr<SpillFiles> files(new SpillFiles(io, options, std::move(folders), std::move(segments)));
  RETURN_IF_ERROR(files->begin(event_fd));
  return files;
}

SpillFiles::SpillFiles(os::FileIo& io, const SpillOptions& options, std::vector<SpillFolder> folders,
                       SegmentMemory::Open segments)
    : io_(io),
      options_(options),
      segments_(std::move(segments)),
      space_(io, std::move(folders), options.limits),
      manifest_(io, space_.folders().front().path + "/manifest", options.instance, options.cipher),
      workers_(io, space_, options.packing, [this] { return chore(); }) {}

SpillFiles::~SpillFiles() { workers_.stop(); }

Status SpillFiles::begin(int event_fd) {
  RETURN_IF_ERROR(space_.open_found());
  ASSIGN_OR_RETURN(replay_, manifest_.open());
  if (replay_.dropped_bytes > 0) {
    log_warning("the manifest in ", space_.folders().front().path, ": its last ", replay_.dropped_bytes,
                " bytes are dropped: ", replay_.damage);
  }
  for (const RememberedObject& one : replay_.objects) {
    for (std::size_t i = 0; i < one.object.blobs.size(); ++i) {
      const ColdBlob& blob = one.object.blobs[i];
      const auto place = unpack_location(blob.location, blob.key);
      if (!place.is_ok()) continue;
      const auto& [copy, packed_bytes] = one.copies[i];
      if (copy != CopyIdentity{options_.instance, blob.key}) origins_[*place] = copy;
      if (packed_bytes != 0) packed_[*place] = packed_bytes;
      told_.insert(*place);
    }
  }
  event_fd_ = event_fd;
  workers_.start(event_fd, options_.threads);
  return Status::ok();
}

std::unique_ptr<SpillTransfer> SpillFiles::transfer_of(std::uint64_t ticket, const BlobKey& blob,
                                                       const BlobPlace& place, BlobBytes bytes) const {
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

Status SpillFiles::write(std::uint64_t ticket, const BlobKey& blob, const BlobPlace& from) {
  if (ended_) return Status(Code::kStoreUnavailable, "the store ends: nothing is spilled any more");
  if (from.length > kMostSpillBytes) {
    return Status(Code::kInvalidArgument, concat("a blob of ", format_bytes(from.length), " is too large to spill"));
  }
  RETURN_IF_ERROR(space_.check_quota(extent_bytes(from.length, options_.cipher != nullptr)));
  ASSIGN_OR_RETURN(BlobBytes bytes, segments_.at(from));
  workers_.add(transfer_of(ticket, blob, from, std::move(bytes)));
  return Status::ok();
}

Status SpillFiles::read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from, const BlobPlace& to) {
  if (ended_) return Status(Code::kStoreUnavailable, "the store ends: nothing is read back any more");
  ASSIGN_OR_RETURN(const SpillPlace place, unpack_location(from, blob));
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
    log_error("a copy cannot be released: ", place.status().message());
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
    const Released one = released_.front();
    released_.pop_front();
    free_extent(one.place, one.bytes);
  }
  if (space_.wants_sweep()) workers_.want_chore();
}

void SpillFiles::free_extent(const SpillPlace& place, std::uint64_t bytes) {
  origins_.erase(place);
  if (const Status freed = space_.release(place, bytes); !freed.is_ok()) {
    log_error("a copy cannot be released: ", freed.message());
  }
}

std::vector<SpillCompletion> SpillFiles::take_completions() {
  free_released();
  std::vector<SpillCompletion> completions;
  for (SpillWorkers::Finished& one : workers_.take_finished()) {
    if (one.extent_used != 0 && one.completion.status.is_ok()) {
      packed_[place_in(one.completion.location)] = one.extent_used;
    }
    completions.push_back(std::move(one.completion));
  }
  return completions;
}

// Runs on a worker. Space that becomes free is released by the daemon's thread, which the event wakes.
std::uint64_t SpillFiles::chore() {
  const std::uint64_t before = manifest_.written();
  if (space_.take_first_made_again()) manifest_.write_anew();
  const bool flushed = manifest_.flush();
  const std::uint64_t next_sweep = space_.sweep();
  if (manifest_.written() != before) os::signal_event(event_fd_);
  return flushed ? next_sweep : std::min(next_sweep, os::monotonic_ns() + kWriteAgainNs);
}

Status SpillFiles::adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) {
  ASSIGN_OR_RETURN(const SpillPlace place, unpack_location(copy, blob));
  if (!told_.contains(place)) find_out_if_packed(place, length);
  return space_.adopt(place, extent_of(place, length));
}

std::uint64_t SpillFiles::extent_of(const SpillPlace& place, std::uint64_t length) const {
  const auto packed = packed_.find(place);
  return packed == packed_.end() ? extent_bytes(length, options_.cipher != nullptr) : packed->second;
}

// For a copy that was complete when a daemon died, of an object not yet in the manifest: reads its header. If that is
// unreadable, the error surfaces when the copy is read.
void SpillFiles::find_out_if_packed(const SpillPlace& place, std::uint64_t length) {
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

Result<SpillLocation> SpillFiles::rebind(const ColdBlob& old, const BlobKey& now) {
  ASSIGN_OR_RETURN(const SpillPlace place, unpack_location(old.location, old.key));
  RETURN_IF_ERROR(space_.adopt(place, extent_of(place, old.length)));
  // Where the manifest names an even earlier store, the replay has set the origin already.
  origins_.try_emplace(place, CopyIdentity{replay_.instance, old.key});
  return pack_location(place, now);
}

std::vector<ColdObject> SpillFiles::recover() {
  std::vector<ColdObject> objects;
  manifest_.begin_new();
  for (const RememberedObject& one : replay_.objects)
    objects.push_back(one.object);
  return objects;
}

void SpillFiles::adopt_end() {
  // A daemon may die between the end of an object and the record of it, so what was not adopted does not exist.
  const bool same_store = replay_.found && replay_.instance == options_.instance;
  if (replay_.found && !same_store) manifest_.begin_new();
  if (same_store) {
    for (const RememberedObject& one : replay_.objects) {
      for (const ColdBlob& blob : one.object.blobs) {
        const auto place = unpack_location(blob.location, blob.key);
        if (place.is_ok() && space_.is_used(*place)) continue;
        (void)manifest_.forget(one.object.id, one.object.generation);
        break;
      }
    }
  }
  std::erase_if(origins_, [this](const auto& entry) { return !space_.is_used(entry.first); });
  std::erase_if(packed_, [this](const auto& entry) { return !space_.is_used(entry.first); });
  told_.clear();
  space_.adopt_end();
  manifest_.finish_new();
  replay_ = {};
  workers_.want_chore();
}

void SpillFiles::remember(const ColdObject& object) {
  RememberedObject remembered{object, {}};
  for (const ColdBlob& blob : object.blobs) {
    CopyIdentity copy{options_.instance, blob.key};
    const auto place = unpack_location(blob.location, blob.key);
    if (!place.is_ok()) {
      log_error("an object is not remembered: ", place.status().message());
      return;
    }
    if (const auto origin = origins_.find(*place); origin != origins_.end()) copy = origin->second;
    const auto packed = packed_.find(*place);
    remembered.copies.push_back({copy, packed == packed_.end() ? 0 : packed->second});
  }
  (void)manifest_.remember(remembered);
  workers_.want_chore();
}

void SpillFiles::forget(const IdBytes& id, std::uint32_t generation) {
  (void)manifest_.forget(id, generation);
  workers_.want_chore();
}

void SpillFiles::discard_all() {
  if (std::exchange(ended_, true)) return;
  workers_.stop();
  space_.remove_all();
}

ColdFigures SpillFiles::figures() const {
  const SpillTotals totals = workers_.totals();
  ColdFigures figures;
  figures.used_bytes = space_.used_bytes();
  figures.quota_bytes = options_.limits.quota_bytes;
  figures.written_bytes = totals.written_bytes;
  figures.stored_bytes = totals.stored_bytes;
  figures.packing = to_text(options_.packing);
  if (options_.cipher != nullptr) figures.key_id = to_hex(options_.cipher->key_id());
  figures.read_bytes = totals.read_bytes;
  figures.pending_writes = totals.pending_writes;
  figures.pending_reads = totals.pending_reads;
  const std::uint64_t recorded = manifest_.written();  // read first: it lags behind appended()
  figures.unrecorded = manifest_.appended() - recorded;
  figures.folders = options_.folders;
  figures.note = space_.note().empty() ? manifest_.note() : space_.note();
  return figures;
}

bool SpillFiles::is_settled() const {
  return !workers_.chore_is_pending() && manifest_.written() == manifest_.appended() && released_.empty() &&
         !space_.wants_sweep();
}

}  // namespace entrepot
