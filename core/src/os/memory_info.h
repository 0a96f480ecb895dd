// Available memory of the machine and of our cgroup (v1 and v2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace entrepot::os {

struct MemoryInfo {
  std::uint64_t total = 0;      // MemTotal
  std::uint64_t available = 0;  // MemAvailable
  // The tightest limit among our cgroup and its parents, and the usage counted against that limit (without page cache
  // that the kernel can drop). nullopt if there is no limit.
  std::optional<std::uint64_t> cgroup_limit;
  std::uint64_t cgroup_usage = 0;

  // Memory that can still be allocated before the machine or the cgroup is full.
  [[nodiscard]] std::uint64_t headroom() const;
  // `the machine has 3 MiB left of 8 GiB`, or what the cgroup has, if that is less.
  [[nodiscard]] std::string describe_headroom() const;
  // The smaller of `total` and the cgroup limit.
  [[nodiscard]] std::uint64_t ceiling() const;
};

// `root` is a prefix of /proc and /sys/fs/cgroup, for tests.
[[nodiscard]] Result<MemoryInfo> read_memory_info(const std::string& root = "");

// Percent of the last 10 s in which some process waited for memory to be freed, as the kernel's pressure stall information
// says: of our control group if it is of version 2, else of the machine. 0 if the kernel does not say.
[[nodiscard]] double read_memory_stall_percent(const std::string& root = "");

// Files of the kernel that say how short of memory our control group is, the most specific first. Some may not exist.
[[nodiscard]] std::vector<std::string> memory_pressure_files(const std::string& root = "");  // at last the machine's
// Of our group and its parents, each of which may have a limit; version 2 only.
[[nodiscard]] std::vector<std::string> memory_events_files(const std::string& root = "");

// Returns memory that this process freed, but its allocator keeps, to the system. Takes as long as the free blocks are
// many: milliseconds for 100 MiB.
void return_free_heap();

}  // namespace entrepot::os
