#include "daemon/spill_settings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "os/events.h"
#include "os/files.h"
#include "os/log.h"
#include "spill/folder.h"
#include "spill/key.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kQuotaOfCapacity = 4;
constexpr std::uint64_t kQuotaShareOfFree = 2;
constexpr std::uint64_t kReserveShareOfDisk = 20;
constexpr std::uint64_t kMinDiskReserveBytes = 1ULL << 30;
constexpr std::uint64_t kMinQuotaBytes = 1ULL << 20;
constexpr std::uint64_t kKeyCommandMs = 10'000;

bool has_key_option(const DaemonConfig& config) {
  return !config.spill_key_file.empty() || !config.spill_key_command.empty();
}

// Null: spilled data is not encrypted.
Result<std::shared_ptr<SpillCipher>> open_cipher(const DaemonConfig& config) {
  if (!has_key_option(config)) return std::shared_ptr<SpillCipher>();
  const bool from_file = !config.spill_key_file.empty();
  const auto key =
      from_file ? key_from_file(config.spill_key_file) : key_from_command(config.spill_key_command, kKeyCommandMs);
  auto cipher = key.is_ok() ? SpillCipher::open(*key) : Result<std::shared_ptr<SpillCipher>>(key.status());
  if (!cipher.is_ok()) return cipher.status().with_context(from_file ? "--spill-key-file" : "--spill-key-command");
  return cipher;
}

// Bytes of the spill files that a store at this address has in `folder`: left there, or written before a restart.
std::uint64_t bytes_written(const std::string& folder, const std::string& socket_path) {
  SpillFolder own;
  own.path = store_subfolder(folder, socket_path);
  const auto files = list_spill_files(own);
  std::uint64_t sum = 0;
  if (!files.is_ok()) return sum;  // there is no such folder yet
  for (const SpillFileEntry& file : *files) {
    const auto bytes = os::bytes_on_disk(file.path);
    if (bytes.is_ok()) sum += *bytes;
  }
  return sum;
}

}  // namespace

Result<SpillOptions> spill_options(os::FileIo& io, const DaemonConfig& config, std::uint64_t capacity_bytes) {
  SpillOptions options;
  options.folders = config.spill_paths;
  const bool by_default = options.folders.empty();
  if (by_default) options.folders.push_back(default_spill_folder());
  options.socket_path = config.socket_path;
  options.packing = config.spill_packing;
  std::set<std::uint64_t> disks;
  std::uint64_t free_bytes = 0;
  std::uint64_t smallest = UINT64_MAX;
  for (const std::string& folder : options.folders) {
    const std::string existing_folder = os::file_exists(folder) ? folder : os::folder_of(folder);
    if (!os::file_exists(existing_folder)) {
      return Status(Code::kInvalidArgument, concat("cannot create spill folder ", folder, ": ", existing_folder,
                                                   " does not exist; create it or choose another folder"));
    }
    const auto space = io.space(existing_folder);
    if (!space.is_ok()) return space.status().with_context(concat("spill folder ", folder));
    if (by_default && space->in_memory) {
      return Status(
          Code::kInvalidArgument,
          concat("spill folder ", folder, " is on an in-memory file system; choose one on a disk with --spill-path"));
    }
    if (disks.insert(space->device).second) free_bytes += space->free_bytes;
    free_bytes += bytes_written(folder, config.socket_path);  // a restart does not make the quota smaller
    smallest = std::min(smallest, space->total_bytes);
  }
  options.limits.reserve_bytes = config.spill_reserve_bytes;
  if (config.spill_reserve_bytes == UINT64_MAX) {
    options.limits.reserve_bytes = std::max(kMinDiskReserveBytes, smallest / kReserveShareOfDisk);
  }
  options.limits.quota_bytes = config.spill_quota_bytes;
  if (config.spill_quota_bytes == UINT64_MAX) {
    options.limits.quota_bytes =
        std::max(kMinQuotaBytes, std::min(kQuotaOfCapacity * capacity_bytes, free_bytes / kQuotaShareOfFree));
  }
  return options;
}

Status validate_spill_config(os::FileIo& io, const DaemonConfig& config) {
  if (config.spill && config.spill_packing.codec != SpillCodec::kNone) {
    const auto packer = open_packer(config.spill_packing);
    if (!packer.is_ok()) return packer.status().with_context("--spill-compression");
  }
  if (!config.spill || (config.spill_paths.empty() && !has_key_option(config))) return Status::ok();
  ASSIGN_OR_RETURN(SpillOptions options, spill_options(io, config, config.capacity_bytes));
  ASSIGN_OR_RETURN(options.cipher, open_cipher(config));
  options.threads = 0;
  ASSIGN_OR_RETURN(const UniqueFd event, os::create_event_fd());
  const SegmentMappings::Open none = [](std::uint32_t, std::uint32_t) -> Result<UniqueFd> {
    return Status(Code::kInternal, "no segments during validation");
  };
  const auto opened = SpillFiles::open(io, options, none, event.get());
  return opened.is_ok() ? Status::ok() : opened.status();
}

void remove_unused_spill_subfolders(os::FileIo& io, const DaemonConfig& config) {
  if (!config.spill) return;
  if (config.spill_paths.empty()) remove_unused_subfolder(io, default_spill_folder(), config.socket_path);
  for (const std::string& folder : config.spill_paths)
    remove_unused_subfolder(io, folder, config.socket_path);
}

std::unique_ptr<SpillFiles> open_spill(os::FileIo& io, const DaemonConfig& config, bool is_new,
                                       std::uint64_t capacity_bytes, const InstanceId& instance,
                                       SegmentMappings::Open segments, int event_fd, std::string& disabled_reason) {
  if (!config.spill) {
    disabled_reason = "disabled by --spill-path none";
    return nullptr;
  }
  Result<std::unique_ptr<SpillFiles>> opened = Status(Code::kInternal, "not opened");
  auto options = spill_options(io, config, capacity_bytes);
  auto cipher = options.is_ok() ? open_cipher(config) : Result<std::shared_ptr<SpillCipher>>(options.status());
  if (cipher.is_ok()) {
    options->instance = instance;
    options->needs_room = is_new;
    options->cipher = cipher.take();
    opened = SpillFiles::open(io, *options, std::move(segments), event_fd);
  } else {
    opened = cipher.status();
  }
  if (!opened.is_ok()) {
    disabled_reason = opened.status().message();
    log_warning("spilling is off: ", disabled_reason);
    return nullptr;
  }
  for (const SpillFolder& folder : (*opened)->folders()) {
    log_info("spilling to ", folder.path, folder.direct ? "" : " (through the page cache: no direct I/O there)");
  }
  if (options->cipher != nullptr) {
    log_info("spilled objects are encrypted with key ", to_hex(options->cipher->key_id()));
  }
  log_info("spill quota ", format_bytes(options->limits.quota_bytes), ", reserve on each disk ",
           format_bytes(options->limits.reserve_bytes));
  return std::move(opened).value();
}

}  // namespace entrepot
