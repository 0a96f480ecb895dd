// How much memory there is: for the machine, and for our cgroup (v1 and v2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace entrepot::os {

struct MemoryInfo {
  std::uint64_t total = 0;      // MemTotal
  std::uint64_t available = 0;  // MemAvailable
  // The tightest limit of our cgroup and its parents, and the use counted against that one (page cache that the kernel
  // can drop is not counted as use). None if nothing limits us.
  std::optional<std::uint64_t> cgroup_limit;
  std::uint64_t cgroup_usage = 0;

  // What can still be taken before the machine or the cgroup is full.
  [[nodiscard]] std::uint64_t headroom() const;
  // The tightest of total and cgroup limit.
  [[nodiscard]] std::uint64_t ceiling() const;
};

// `root` is put before /proc and /sys/fs/cgroup, for tests.
[[nodiscard]] Result<MemoryInfo> read_memory_info(const std::string& root = "");

}  // namespace entrepot::os
