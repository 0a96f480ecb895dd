#include "spill/folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/id.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kDayNs = 86'400'000'000'000ULL;
constexpr std::uint32_t kMaxStale = 64;  // subdirectories examined per start
constexpr std::uint64_t kPauseMs = 5;    // between two attempts to lock
constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kFilePrefix = "spill-";

std::uint16_t number_of(std::string_view name) {
  if (!name.starts_with(kFilePrefix)) return 0;
  name.remove_prefix(kFilePrefix.size());
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc{} && end == name.data() + name.size() ? number : 0;
}

bool is_ours(std::string_view name) {
  return name == "lock" || name.starts_with("manifest") || name.starts_with("probe-") || number_of(name) != 0;
}

bool is_subfolder_name(std::string_view name) {
  return name.size() == kHashDigits && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Locks the subdirectory. A daemon that is ending removes it, possibly between two of our steps.
Result<UniqueFd> lock_subfolder(const std::string& subfolder, std::uint64_t lock_wait_ms) {
  const auto deadline = os::Deadline::after_ms(lock_wait_ms);
  while (true) {
    RETURN_IF_ERROR(os::ensure_private_subfolder(subfolder));
    auto lock = os::lock_file(concat(subfolder, "/lock"));
    if (lock.is_ok() || lock.code() != Code::kStoreUnavailable || deadline.passed()) return lock;
    os::pause_ms(kPauseMs);
  }
}

std::uint64_t newest_of(const std::string& subfolder, const std::vector<std::string>& names) {
  std::uint64_t newest = 0;
  for (const std::string& name : names) {
    const auto modified = os::modified_unix_ns(concat(subfolder, "/", name));
    if (modified.is_ok()) newest = std::max(newest, *modified);
  }
  return newest;
}

bool remove_if_stale(os::FileIo& io, const std::string& subfolder, std::uint64_t now_unix_ns) {
  const auto names = os::list_folder(subfolder);
  if (!names.is_ok() || now_unix_ns < newest_of(subfolder, *names) + kDayNs) return false;
  const auto lock = os::lock_file(concat(subfolder, "/lock"));
  if (!lock.is_ok()) return false;
  const Status removed = remove_store_subfolder(io, subfolder);
  if (!removed.is_ok()) log_warning("cannot remove the leftovers of a store in ", subfolder, ": ", removed.message());
  return removed.is_ok();
}

}  // namespace

std::string default_spill_folder() { return concat("/var/tmp/entrepot-", os::current_uid()); }

std::string store_subfolder(const std::string& folder, const std::string& socket_path) {
  std::array<std::uint8_t, 8> hash{};
  std::uint64_t rest = hash_text(socket_path);
  for (std::uint8_t& byte : hash) {
    byte = static_cast<std::uint8_t>(rest);
    rest >>= 8;
  }
  return concat(folder, "/", to_hex(hash));
}

std::string spill_file_path(const SpillFolder& folder, std::uint16_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, 5 - digits.size(), '0');
  return concat(folder.path, "/", kFilePrefix, digits);
}

Result<SpillFolder> open_spill_folder(os::FileIo& io, const std::string& folder, const std::string& socket_path,
                                      std::optional<std::uint64_t> reserve_bytes, std::uint64_t lock_wait_ms) {
  const auto context = [&](const Status& status) { return status.with_context(concat("spill folder ", folder)); };
  if (const Status opened_status = os::ensure_private_subfolder(folder); !opened_status.is_ok())
    return context(opened_status);
  SpillFolder opened;
  opened.path = store_subfolder(folder, socket_path);
  opened.folder = folder;
  opened.socket_path = socket_path;
  auto lock = lock_subfolder(opened.path, lock_wait_ms);
  if (!lock.is_ok() && lock.code() == Code::kStoreUnavailable) {
    return Status(Code::kStoreUnavailable,
                  concat("spill folder ", folder, ": another daemon with the address ", socket_path, " uses it (",
                         lock.status().message(), "); give each store its own folder"),
                  true);
  }
  if (!lock.is_ok()) return context(lock.status());
  opened.lock = std::move(lock).value();
  const auto space = io.space(opened.path);
  if (!space.is_ok()) return context(space.status());
  opened.device = space->device;
  const auto files = list_spill_files(opened);  // existing files may be all the space the store needs
  if (!files.is_ok()) return context(files.status());
  const bool may_be_full = !reserve_bytes || !files->empty();
  if (!may_be_full && space->free_bytes < *reserve_bytes) {
    return Status(Code::kStoreFull,
                  concat("spill folder ", folder, ": its disk has ", format_bytes(space->free_bytes), " free, but ",
                         format_bytes(*reserve_bytes),
                         " must stay free (--spill-reserve); free some space, or choose a folder on another disk"));
  }
  auto direct = probe_direct(io, opened.path);
  if (may_be_full && direct.code() == Code::kStoreFull) direct = false;  // unknown; the page cache works everywhere
  if (!direct.is_ok()) return context(direct.status());
  opened.direct = *direct;
  return opened;
}

bool still_exists(const SpillFolder& opened) { return os::is_file_at(opened.lock.get(), concat(opened.path, "/lock")); }

Result<SpillFolder> reopen_spill_folder(os::FileIo& io, const SpillFolder& previous, std::uint64_t reserve_bytes) {
  // Checked before anything is created: if a disk is not mounted, its path is a directory on another, unintended disk.
  const std::string existing_folder =
      os::file_exists(previous.folder) ? previous.folder : std::string(os::folder_of(previous.folder));
  ASSIGN_OR_RETURN(const os::DiskSpace space, io.space(existing_folder));
  if (space.device != previous.device) {
    return Status(Code::kInvalidArgument,
                  concat("spill folder ", previous.folder,
                         " was removed, and its path is on another file system than before; remount its disk, or "
                         "restart the store"));
  }
  return open_spill_folder(io, previous.folder, previous.socket_path, reserve_bytes, 0);
}

Result<std::vector<SpillFileEntry>> list_spill_files(const SpillFolder& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, os::list_folder(folder.path));
  std::vector<SpillFileEntry> files;
  for (const std::string& name : names) {
    const std::uint16_t number = number_of(name);
    std::string path = concat(folder.path, "/", name);
    if (number != 0 && os::is_plain_file(path)) files.push_back({number, std::move(path)});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return files;
}

Status remove_store_subfolder(os::FileIo& io, const std::string& subfolder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, os::list_folder(subfolder));
  // The lock last: while it exists, nobody takes the directory for free.
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a != "lock" && b == "lock"; });
  for (const std::string& name : names) {
    if (is_ours(name)) RETURN_IF_ERROR(io.remove(concat(subfolder, "/", name)));
  }
  return os::remove_folder(subfolder);
}

void remove_unused_subfolder(os::FileIo& io, const std::string& folder, const std::string& socket_path) {
  const std::string subfolder = store_subfolder(folder, socket_path);
  const auto is_unused = [&subfolder] {
    const auto names = os::list_folder(subfolder);
    return names.is_ok() && *names == std::vector<std::string>{"lock"};
  };
  if (!is_unused()) return;
  const auto lock = os::lock_file(concat(subfolder, "/lock"));
  if (!lock.is_ok() || !is_unused()) return;
  const Status removed = remove_store_subfolder(io, subfolder);
  if (!removed.is_ok()) log_warning("cannot remove the unused spill folder ", subfolder, ": ", removed.message());
}

std::uint32_t remove_stale_subfolders(os::FileIo& io, const std::string& folder, std::uint64_t now_unix_ns) {
  const auto names = os::list_folder(folder);
  if (!names.is_ok()) return 0;
  std::uint32_t looked_at = 0;
  std::uint32_t removed = 0;
  for (const std::string& name : *names) {
    if (!is_subfolder_name(name)) continue;
    if (++looked_at > kMaxStale) break;
    if (remove_if_stale(io, concat(folder, "/", name), now_unix_ns)) ++removed;
  }
  if (removed > 0) log_info("removed the leftovers of ", removed, " dead stores in ", folder);
  return removed;
}

}  // namespace entrepot
