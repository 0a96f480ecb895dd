// The daemon's configuration: flags, then the configuration file, then defaults. docs/daemon.md describes both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "daemon/spill_codec.h"

namespace entrepot {

// kUser: as a person or the launcher starts it. kCandidate: asked whether it could take a store over.
enum class Role : std::uint8_t { kUser, kKeeper, kDaemon, kCandidate };

inline constexpr std::uint64_t kGiveBackAfterSeconds = 30;

struct DaemonConfig {
  std::string socket_path;                                        // of --address
  std::uint64_t capacity_bytes = 0;                               // 0: from the machine's memory
  std::uint64_t warm_bytes = UINT64_MAX;                          // UINT64_MAX: from the capacity
  std::uint64_t give_back_after_seconds = kGiveBackAfterSeconds;  // 0: never
  std::uint64_t idle_exit_seconds = 0;                            // 0: never
  std::uint64_t default_ttl_seconds = 24 * 3600;
  std::vector<std::string> spill_paths;            // absolute; empty: the default folder
  bool spill = true;                               // false: --spill-path none
  std::uint64_t spill_quota_bytes = UINT64_MAX;    // UINT64_MAX: from capacity and disk
  std::uint64_t spill_reserve_bytes = UINT64_MAX;  // UINT64_MAX: from the disk
  SpillPacking spill_packing;
  std::string spill_key_file;     // absolute; empty: none
  std::string spill_key_command;  // for /bin/sh; empty: none. At most one of both
  std::string log_file;           // empty: standard error
  int ready_fd = -1;

  // Between keeper and daemon only.
  Role role = Role::kUser;
  int keeper_fd = -1;
  int daemon_fd = -1;
  int estate_fd = -1;
  std::int32_t daemon_pid = 0;
  std::uint32_t follows_killed = 0;  // 1: a store that was killed was here before

  bool show_help = false;
  bool show_version = false;
};

// `arguments` without the program's name. kInvalidArgument names the flag or the file's line, and what it takes.
[[nodiscard]] Result<DaemonConfig> parse_config(const std::vector<std::string>& arguments);

// The flags that give another process of the same store the same configuration.
[[nodiscard]] std::vector<std::string> config_arguments(const DaemonConfig& config);

// "4GiB", "512MiB", "1048576" (bytes). Decimal units (GB) are refused with a hint: they are ambiguous in practice.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);
// "900", "15min", "24h", "90s".
[[nodiscard]] Result<std::uint64_t> parse_seconds(std::string_view text);

[[nodiscard]] std::string_view help_text();

}  // namespace entrepot
