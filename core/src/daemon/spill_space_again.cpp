// Recreation of directories removed while the store runs, by a cleaner of old files or a user who needs the space.
#include <utility>

#include "base/log.h"
#include "daemon/spill_space.h"
#include "os/clock.h"
#include "os/files.h"

namespace entrepot {

// Called by a worker that holds growing_. A directory that cannot be recreated is skipped like any that fails.
void SpillSpace::make_again_what_is_gone() {
  for (std::size_t folder = 0; folder < folders_.size(); ++folder) {
    if (is_still_there(folders_[folder])) {
      gone_until_ns_[folder] = 0;
      continue;
    }
    // Whatever happened to earlier writes, try at once: they may have failed because the directory is gone.
    if (gone_until_ns_[folder] > os::monotonic_ns()) continue;
    auto made = open_spill_folder_again(io_, folders_[folder], limits_.reserve_bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made.is_ok()) {
      leave_alone(folder, made.status());
      gone_until_ns_[folder] = shy_[folder].until_ns;
      log_warning("a spill folder was removed and cannot be made again: ", made.status().message());
      continue;
    }
    log_warning("spill folder ", folders_[folder].path,
                " was removed and is made again; what was in it is readable until this daemon ends");
    folders_[folder] = std::move(made).value();
    shy_[folder] = {};
    gone_until_ns_[folder] = 0;
    give_up_removed_files(folder);
    if (folder == 0) first_made_again_ = true;
  }
}

// No new copies in files that the next daemon would not find.
void SpillSpace::give_up_removed_files(std::size_t folder) {
  std::vector<std::shared_ptr<SpillFile>> gone;
  for (const auto& [number, file] : files_) {
    if (file->folder == folder && !os::is_file_at(file->fd.get(), file->path)) gone.push_back(file);
  }
  for (const auto& file : gone) {
    file->abandoned = true;
    emptied(file);
  }
}

bool SpillSpace::take_first_made_again() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(first_made_again_, false);
}

}  // namespace entrepot
