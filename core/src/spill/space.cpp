#include "spill/space.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMinFileBytes = 16ULL << 20;
constexpr std::uint64_t kMaxFileBytes = 1ULL << 30;
constexpr std::uint64_t kQuotaShare = 16;  // a file is 1/n of the quota
constexpr std::uint64_t kMaxFiles = 60'000;
constexpr std::uint64_t kMinPunchBytes = 64U << 10;

std::uint64_t file_bytes_for_quota(std::uint64_t quota) {
  return std::clamp(quota / kQuotaShare / kSpillBlockBytes * kSpillBlockBytes, kMinFileBytes, kMaxFileBytes);
}

}  // namespace

SpillSpace::SpillSpace(os::FileIo& io, std::vector<SpillFolder> folders, SpillLimits limits)
    : io_(io),
      folders_(std::move(folders)),
      limits_(limits),
      default_file_bytes_(file_bytes_for_quota(limits.quota_bytes)),
      missing_until_ns_(folders_.size()),
      backoffs_(folders_.size()) {}

Status SpillSpace::open_existing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  adopting_ = true;
  for (std::size_t folder = 0; folder < folders_.size(); ++folder) {
    ASSIGN_OR_RETURN(const std::vector<SpillFileEntry> entries, list_spill_files(folders_[folder]));
    for (const SpillFileEntry& entry : entries) {
      auto fd = io_.open(entry.path, os::FileUse::kExisting, folders_[folder].direct);
      const auto bytes = fd.is_ok() ? os::file_bytes(fd->get()) : Result<std::uint64_t>(fd.status());
      if (!bytes.is_ok() || files_.contains(entry.number)) {
        log_warning("spill file ", entry.path, " is ignored: ",
                    bytes.is_ok() ? "another folder has a file with that number" : bytes.status().message());
        busy_numbers_.insert(entry.number);
        continue;
      }
      auto file = std::make_shared<SpillFile>();
      file->number = entry.number;
      file->folder = folder;
      file->path = entry.path;
      file->fd = std::move(fd).value();
      file->direct = folders_[folder].direct;
      file->bytes = *bytes / kSpillPage * kSpillPage;
      file->extents.grow(file->bytes);
      file_bytes_ += file->bytes;
      next_number_ = std::max<std::uint16_t>(next_number_, entry.number);
      files_.emplace(entry.number, std::move(file));
    }
  }
  return Status::ok();
}

Status SpillSpace::adopt(const SpillPosition& place, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto file = files_.find(place.file);
  if (file == files_.end() || place.offset > file->second->bytes || bytes > file->second->bytes - place.offset) {
    return Status(Code::kObjectLost, concat("there is no copy at ", place.offset, " of spill file ", place.file,
                                            file == files_.end() ? ": the file is gone" : ": the file is shorter"));
  }
  RETURN_IF_ERROR(file->second->extents.reserve(place.offset, bytes));
  used_bytes_ += bytes;
  return Status::ok();
}

void SpillSpace::adopt_end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  adopting_ = false;
  std::vector<std::shared_ptr<SpillFile>> all;
  for (const auto& [number, file] : files_)
    all.push_back(file);
  for (const auto& file : all)
    on_emptied(file);
}

Result<SpillExtent> SpillSpace::find(const SpillPosition& place, std::uint64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto file = files_.find(place.file);
  if (file == files_.end() || place.offset > file->second->bytes || bytes > file->second->bytes - place.offset) {
    return Status(Code::kObjectLost, concat("there is no copy at ", place.offset, " of spill file ", place.file));
  }
  return SpillExtent{file->second, place.offset, bytes};
}

bool SpillSpace::is_used(const SpillPosition& place) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto file = files_.find(place.file);
  return file != files_.end() && place.offset < file->second->bytes &&
         !file->second->extents.is_free(place.offset, kSpillPage);
}

Status SpillSpace::quota_error(std::uint64_t bytes) const {
  return Status(Code::kStoreFull,
                concat("the spill quota of ", format_bytes(limits_.quota_bytes), " does not have ", format_bytes(bytes),
                       " left: copies use ", format_bytes(used_bytes_), " in files of ", format_bytes(file_bytes_),
                       "; delete objects, or set a larger --spill-quota"),
                true);
}

Status SpillSpace::check_quota(std::uint64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes <= limits_.quota_bytes && used_bytes_ <= limits_.quota_bytes - bytes) return Status::ok();
  return quota_error(bytes);
}

Result<SpillExtent> SpillSpace::allocate(std::uint64_t bytes) {
  const std::lock_guard<std::mutex> growing(growing_);
  recreate_missing_folders();
  std::unique_lock<std::mutex> lock(mutex_);
  const std::size_t first = next_folder_++ % folders_.size();
  Status refused;
  for (std::size_t turn = 0; turn < folders_.size(); ++turn) {
    const std::size_t folder = (first + turn) % folders_.size();
    auto extent = allocate_from_files(folder, bytes);
    if (!extent) {
      const Status grown = grow(folder, bytes, lock);
      if (grown.is_ok()) extent = allocate_from_files(folder, bytes);
      if (!grown.is_ok() && (refused.is_ok() || refused.code() == Code::kStoreFull)) refused = grown;
    }
    if (!extent) continue;
    note_.clear();
    return std::move(*extent);
  }
  if (refused.is_ok()) refused = Status(Code::kInternal, "a new spill file has no room");
  note_ = refused.message();
  return refused;
}

std::optional<SpillExtent> SpillSpace::allocate_from_files(std::size_t folder, std::uint64_t bytes) {
  if (is_backing_off(folder)) return std::nullopt;
  for (const auto& [number, file] : files_) {
    if (file->folder != folder || file->abandoned || file->extents.largest_free() < bytes) continue;
    const auto offset = file->extents.allocate(bytes);
    if (!offset) continue;
    const std::uint64_t filled = file->holes.punched_bytes(*offset, bytes);
    if (filled > quota_left()) {
      if (const Status freed = file->extents.free(*offset, bytes); !freed.is_ok()) log_error(freed.message());
      continue;
    }
    file->holes.fill(*offset, bytes);
    file_bytes_ += filled;
    used_bytes_ += bytes;
    return SpillExtent{file, *offset, bytes};
  }
  return std::nullopt;
}

std::uint64_t SpillSpace::quota_left() const {
  return limits_.quota_bytes > file_bytes_ ? limits_.quota_bytes - file_bytes_ : 0;
}

// Called only by allocate(), which alone takes free ranges: so they stay free while the lock is released.
void SpillSpace::punch_free(std::unique_lock<std::mutex>& lock) {
  struct Range {
    std::shared_ptr<SpillFile> file;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Range> ranges;
  for (const auto& [number, file] : files_) {
    file->extents.for_each_free([&, &owner = file](std::uint64_t offset, std::uint64_t bytes) {
      if (bytes >= kMinPunchBytes && owner->holes.punched_bytes(offset, bytes) < bytes) {
        ranges.push_back({owner, offset, bytes});
      }
    });
  }
  lock.unlock();
  for (Range& range : ranges) {
    // If the file system cannot punch, the range still counts as used.
    if (!io_.punch(range.file->fd.get(), range.offset, range.bytes).is_ok()) range.bytes = 0;
  }
  lock.lock();
  for (const Range& range : ranges) {
    if (range.bytes == 0 || !files_.contains(range.file->number)) continue;
    file_bytes_ += range.file->holes.bytes();
    range.file->holes.add(range.offset, range.bytes);
    file_bytes_ -= range.file->holes.bytes();
  }
}

// Size of a new file in this directory; at least `bytes`. For large copies, a multiple of that size, so that nothing is
// left over if all have the same size.
Result<std::uint64_t> SpillSpace::check_new_file(std::size_t folder, std::uint64_t bytes,
                                                 std::unique_lock<std::mutex>& lock) {
  if (files_.size() >= kMaxFiles) {
    return Status(Code::kStoreFull, concat("there are already ", files_.size(), " spill files, which is the limit"));
  }
  lock.unlock();
  const auto space = io_.space(folders_[folder].path);
  lock.lock();
  RETURN_IF_ERROR(space);
  const std::uint64_t new_file_bytes = (default_file_bytes_ + bytes - 1) / bytes * bytes;
  if (quota_left() < new_file_bytes) retire_all_empty();
  if (quota_left() < bytes) punch_free(lock);
  if (quota_left() < bytes) return quota_error(bytes);
  const std::uint64_t spare = space->free_bytes > limits_.reserve_bytes ? space->free_bytes - limits_.reserve_bytes : 0;
  if (spare < bytes) {
    return Status(Code::kStoreFull,
                  concat("the disk of ", folders_[folder].path, " has ", format_bytes(space->free_bytes), " free, and ",
                         format_bytes(limits_.reserve_bytes), " must stay free (--spill-reserve), so ",
                         format_bytes(bytes), " more cannot be allocated"),
                  true);
  }
  return std::min({new_file_bytes, quota_left(), spare}) / bytes * bytes;
}

Status SpillSpace::grow(std::size_t folder, std::uint64_t bytes, std::unique_lock<std::mutex>& lock) {
  if (is_backing_off(folder)) {
    return Status(Code::kStoreFull, concat(folders_[folder].path, " is temporarily not used: ", backoffs_[folder].why),
                  true);
  }
  ASSIGN_OR_RETURN(const std::uint64_t new_file_bytes, check_new_file(folder, bytes, lock));
  const std::uint16_t number = free_number();
  busy_numbers_.insert(number);
  file_bytes_ += new_file_bytes;
  lock.unlock();
  auto created = create_file(folder, number, new_file_bytes);
  lock.lock();
  busy_numbers_.erase(number);
  if (!created.is_ok()) {
    file_bytes_ -= new_file_bytes;
    back_off(folder, created.status());
    log_warning("cannot create a spill file: ", created.status().message());
    return created.status();
  }
  files_.emplace(number, std::move(created).value());
  return Status::ok();
}

// A directory that is gone is always skipped, however long ago it was tried: its path may belong to somebody else.
bool SpillSpace::is_backing_off(std::size_t folder) const {
  return missing_until_ns_[folder] != 0 || backoffs_[folder].until_ns > os::monotonic_ns();
}

void SpillSpace::back_off(std::size_t folder, const Status& why) {
  backoffs_[folder] = {os::monotonic_ns() + limits_.backoff_ns, why.message()};
}

Result<std::shared_ptr<SpillFile>> SpillSpace::create_file(std::size_t folder, std::uint16_t number,
                                                           std::uint64_t bytes) {
  auto file = std::make_shared<SpillFile>();
  file->number = number;
  file->folder = folder;
  file->path = spill_file_path(folders_[folder], number);
  file->direct = folders_[folder].direct;
  file->bytes = bytes;
  file->extents.grow(bytes);
  ASSIGN_OR_RETURN(file->fd, io_.open(file->path, os::FileUse::kNew, file->direct));
  if (const Status taken = io_.preallocate(file->fd.get(), bytes); !taken.is_ok()) {
    if (const Status removed = io_.remove(file->path); !removed.is_ok()) log_warning(removed.message());
    return taken.with_context(file->path);
  }
  return file;
}

// kMaxFiles is below the range of numbers, so there is always a free one.
std::uint16_t SpillSpace::free_number() {
  do {
    next_number_ = next_number_ == UINT16_MAX ? 1 : static_cast<std::uint16_t>(next_number_ + 1);
  } while (files_.contains(next_number_) || busy_numbers_.contains(next_number_));
  return next_number_;
}

Status SpillSpace::release(const SpillPosition& place, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto match = files_.find(place.file);
  if (match == files_.end()) return Status(Code::kInternal, concat("there is no spill file ", place.file));
  RETURN_IF_ERROR(match->second->extents.free(place.offset, bytes));
  used_bytes_ -= bytes;
  on_emptied(match->second);
  return Status::ok();
}

void SpillSpace::shrink(const SpillExtent& extent, std::uint64_t bytes) {
  if (bytes >= extent.bytes) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Status freed = extent.file->extents.free(extent.offset + bytes, extent.bytes - bytes); !freed.is_ok()) {
    log_error("spill file ", extent.file->path, ": ", freed.message());
    return;
  }
  used_bytes_ -= extent.bytes - bytes;
}

void SpillSpace::write_failed(const SpillExtent& extent, const Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool full = why.code() == Code::kStoreFull;
  note_ = why.message();
  back_off(extent.file->folder, why);
  if (!full && !extent.file->abandoned) {
    extent.file->abandoned = true;
    log_error("abandoning a spill file: ", why.message());
  }
  if (const Status freed = extent.file->extents.free(extent.offset, extent.bytes); !freed.is_ok()) {
    log_error("spill file ", extent.file->path, ": ", freed.message());
    return;
  }
  used_bytes_ -= extent.bytes;
  on_emptied(extent.file);
}

std::uint64_t SpillSpace::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

std::uint64_t SpillSpace::file_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return file_bytes_;
}

std::string SpillSpace::note() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return note_;
}

}  // namespace entrepot
