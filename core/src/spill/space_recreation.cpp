// Recreation of directories removed while the store runs, by a cleaner of old files or a user who needs the space.
#include <utility>

#include "os/clock.h"
#include "os/files.h"
#include "os/log.h"
#include "spill/space.h"

namespace entrepot {

// Called by a worker that holds growing_. A directory that cannot be recreated is skipped like any that fails.
void SpillSpace::recreate_missing_folders() {
  for (std::size_t folder = 0; folder < folders_.size(); ++folder) {
    if (still_exists(folders_[folder])) {
      missing_until_ns_[folder] = 0;
      continue;
    }
    // Whatever happened to earlier writes, try at once: they may have failed because the directory is gone.
    if (missing_until_ns_[folder] > os::monotonic_ns()) continue;
    auto recreated = reopen_spill_folder(io_, folders_[folder], limits_.reserve_bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!recreated.is_ok()) {
      back_off(folder, recreated.status());
      missing_until_ns_[folder] = backoffs_[folder].until_ns;
      log_warning("a spill folder was removed and cannot be recreated: ", recreated.status().message());
      continue;
    }
    log_warning("spill folder ", folders_[folder].path,
                " was removed and has been recreated; its previous contents stay readable until this daemon exits");
    folders_[folder] = std::move(recreated).value();
    backoffs_[folder] = {};
    missing_until_ns_[folder] = 0;
    abandon_removed_files(folder);
    if (folder == 0) first_folder_recreated_ = true;
  }
}

// No new copies in files that the next daemon would not find.
void SpillSpace::abandon_removed_files(std::size_t folder) {
  std::vector<std::shared_ptr<SpillFile>> removed_files;
  for (const auto& [number, file] : files_) {
    if (file->folder == folder && !os::is_file_at(file->fd.get(), file->path)) removed_files.push_back(file);
  }
  for (const auto& file : removed_files) {
    file->abandoned = true;
    on_emptied(file);
  }
}

bool SpillSpace::take_first_folder_recreated() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(first_folder_recreated_, false);
}

}  // namespace entrepot
