// Configuration of the daemon: flags, then the configuration file, then defaults. Both are described in docs/daemon.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "spill/codec.h"

namespace entrepot {

// kUser: started by a person or the launcher. kCandidate: asked whether it could take over a running store.
enum class Role : std::uint8_t { kUser, kKeeper, kDaemon, kCandidate };

inline constexpr std::uint64_t kGiveBackAfterSeconds = 30;

struct DaemonConfig {
  std::string socket_path;                                        // from --address
  std::uint64_t capacity_bytes = 0;                               // 0: derived from the machine's memory
  std::uint64_t warm_bytes = UINT64_MAX;                          // UINT64_MAX: derived from the capacity
  std::uint64_t give_back_after_seconds = kGiveBackAfterSeconds;  // 0: never
  std::uint64_t idle_exit_seconds = 0;                            // 0: never
  std::uint64_t default_ttl_seconds = 24 * 3600;
  std::vector<std::string> spill_paths;            // absolute; empty: the default directory
  bool spill = true;                               // false: --spill-path none
  std::uint64_t spill_quota_bytes = UINT64_MAX;    // UINT64_MAX: derived from capacity and disk
  std::uint64_t spill_reserve_bytes = UINT64_MAX;  // UINT64_MAX: derived from the disk
  SpillPacking spill_packing;
  std::string spill_key_file;     // absolute; empty: none
  std::string spill_key_command;  // for /bin/sh; empty: none. At most one of the two is set
  std::string log_file;           // empty: standard error
  int ready_fd = -1;

  // Only between keeper and daemon.
  Role role = Role::kUser;
  int keeper_fd = -1;
  int daemon_fd = -1;
  int handover_fd = -1;
  std::int32_t daemon_pid = 0;
  std::uint32_t recovered_from_crash = 0;  // 1: the previous store was killed

  bool show_help = false;
  bool show_version = false;
};

// `arguments` without the program's name. kInvalidArgument names the flag or the file's line, and what it accepts.
[[nodiscard]] Result<DaemonConfig> parse_config(const std::vector<std::string>& arguments);

// Flags that give another process of this store the same configuration.
[[nodiscard]] std::vector<std::string> config_arguments(const DaemonConfig& config);

// "4GiB", "512MiB", "1048576" (bytes). Decimal units (GB) are refused with a hint: they are ambiguous in practice.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);
// "900", "15min", "24h", "90s".
[[nodiscard]] Result<std::uint64_t> parse_seconds(std::string_view text);

[[nodiscard]] std::string_view help_text();

}  // namespace entrepot
