// Removal of spill files: empty ones are kept for a while, then retired, then removed from disk by a sweep.
#include <algorithm>
#include <utility>

#include "os/clock.h"
#include "os/log.h"
#include "spill/space.h"

namespace entrepot {

// An empty file is kept for a while, for the next copies.
void SpillSpace::on_emptied(const std::shared_ptr<SpillFile>& file) {
  if (file->extents.used_bytes() != 0) return;
  file->empty_since_ns = os::monotonic_ns();
  if (file->abandoned || limits_.empty_file_ttl_ns == 0) {
    retire(files_.find(file->number));
  } else {
    has_new_empty_ = true;
  }
}

// Returns when the next one is old enough.
std::uint64_t SpillSpace::retire_expired() {
  if (adopting_) return UINT64_MAX;
  const std::uint64_t now = os::monotonic_ns();
  std::uint64_t next = UINT64_MAX;
  for (auto file = files_.begin(); file != files_.end();) {
    const auto following = std::next(file);
    if (file->second->extents.used_bytes() == 0) {
      const std::uint64_t end = file->second->empty_since_ns + limits_.empty_file_ttl_ns;
      if (end <= now) {
        retire(file);
      } else {
        next = std::min(next, end);
      }
    }
    file = following;
  }
  return next;
}

void SpillSpace::retire_all_empty() {
  for (auto file = files_.begin(); file != files_.end();) {
    const auto next = std::next(file);
    if (file->second->extents.used_bytes() == 0) retire(file);
    file = next;
  }
}

void SpillSpace::retire(Files::iterator file) {
  file_bytes_ -= file->second->bytes - file->second->holes.bytes();
  busy_numbers_.insert(file->first);
  retired_.push_back(std::move(file->second));
  files_.erase(file);
}

bool SpillSpace::wants_sweep() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !retired_.empty() || has_new_empty_;
}

std::uint64_t SpillSpace::sweep() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_new_empty_ = false;
  const std::uint64_t next = retire_expired();
  std::vector<std::shared_ptr<SpillFile>> retired = std::exchange(retired_, {});
  lock.unlock();
  std::vector<std::uint16_t> removed_numbers;
  for (std::shared_ptr<SpillFile>& file : retired) {
    // One that cannot be removed keeps its number: a new file of that name could not be created either.
    if (const Status removed = io_.remove(file->path); removed.is_ok()) {
      removed_numbers.push_back(file->number);
    } else {
      log_warning("cannot remove a spill file: ", removed.message());
    }
    file.reset();  // the last descriptor: frees its disk space
  }
  lock.lock();
  for (const std::uint16_t number : removed_numbers)
    busy_numbers_.erase(number);
  return next;
}

void SpillSpace::remove_all() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_.clear();
    retired_.clear();
    file_bytes_ = 0;
    used_bytes_ = 0;
  }
  for (const SpillFolder& folder : folders_) {
    if (const Status removed = remove_store_subfolder(io_, folder.path); !removed.is_ok()) {
      log_warning("cannot remove the spilled objects in ", folder.path, ": ", removed.message());
    }
  }
}

}  // namespace entrepot
