#include "os/memory_info.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "os/files.h"

namespace entrepot::os {

namespace {

// The number after `key` at the start of a line, e.g. "MemTotal:   123 kB".
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    const std::size_t digit = line.find_first_not_of(" \t:");
    if (digit == std::string_view::npos) return std::nullopt;
    line.remove_prefix(digit);
    std::uint64_t value = 0;
    const auto [last, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc{}) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.is_ok()) return std::nullopt;
  std::uint64_t value = 0;
  const auto [last, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{}) return std::nullopt;  // includes "max"
  return value;
}

struct Controller {
  std::string folder;  // mount point of the hierarchy
  std::string group;   // our path within it
  std::string limit_file;
  std::string usage_file;
  std::string cache_key;  // in memory.stat: memory that the kernel can drop
};

// Parses /proc/self/cgroup: "0::/path" is version 2, "N:...,memory,...:/path" version 1.
std::vector<Controller> controllers(const std::string& root) {
  std::vector<Controller> controllers;
  const Result<std::string> text = read_file(root + "/proc/self/cgroup");
  if (!text.is_ok()) return controllers;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string names = concat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string group(line.substr(second + 1));
    if (names == ",,") {
      controllers.push_back({root + "/sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file"});
    } else if (names.find(",memory,") != std::string::npos) {
      controllers.push_back({root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file"});
    }
  }
  return controllers;
}

bool is_version_two(const Controller& controller) { return controller.limit_file == "memory.max"; }

// Inside a container the path may be the host's and not exist here; then the mount's root is our group.
std::vector<std::string> group_and_parents(const Controller& controller) {
  std::string group = controller.group == "/" ? "" : controller.group;
  std::vector<std::string> groups;
  while (true) {
    groups.push_back(group);
    if (group.empty()) return groups;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

void consider(MemoryInfo& info, const Controller& controller, const std::string& folder) {
  const std::optional<std::uint64_t> limit = read_number(folder + "/" + controller.limit_file);
  // Version 1 expresses "no limit" as a number larger than any memory.
  if (!limit || *limit >= info.total) return;
  std::uint64_t usage = read_number(folder + "/" + controller.usage_file).value_or(0);
  const Result<std::string> stat = read_file(folder + "/memory.stat");
  if (stat.is_ok()) usage -= std::min(usage, number_after(*stat, controller.cache_key + " ").value_or(0));
  const auto room = [](std::uint64_t of, std::uint64_t used) { return of > used ? of - used : 0; };
  if (info.cgroup_limit && room(*info.cgroup_limit, info.cgroup_usage) <= room(*limit, usage)) return;
  info.cgroup_limit = limit;
  info.cgroup_usage = usage;
}

}  // namespace

std::uint64_t MemoryInfo::headroom() const {
  if (!cgroup_limit) return available;
  const std::uint64_t room = *cgroup_limit > cgroup_usage ? *cgroup_limit - cgroup_usage : 0;
  return std::min(available, room);
}

std::string MemoryInfo::describe_headroom() const {
  const bool is_of_cgroup = cgroup_limit && headroom() < available;
  return concat(is_of_cgroup ? "the daemon's control group has " : "the machine has ", format_bytes(headroom()),
                " left of ", format_bytes(is_of_cgroup ? *cgroup_limit : total));
}

std::uint64_t MemoryInfo::ceiling() const { return cgroup_limit ? std::min(total, *cgroup_limit) : total; }

Result<MemoryInfo> read_memory_info(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const std::optional<std::uint64_t> total = number_after(text, "MemTotal:");
  const std::optional<std::uint64_t> available = number_after(text, "MemAvailable:");
  if (!total || !available) {
    return Status(Code::kInternal, concat(path, " names no MemTotal or no MemAvailable; give the capacity by --size"));
  }
  MemoryInfo info;
  info.total = *total * 1024;
  info.available = *available * 1024;
  for (const Controller& controller : controllers(root)) {
    for (const std::string& group : group_and_parents(controller))
      consider(info, controller, controller.folder + group);
  }
  return info;
}

std::vector<std::string> memory_pressure_files(const std::string& root) {
  std::vector<std::string> files;
  for (const Controller& controller : controllers(root)) {
    if (is_version_two(controller)) files.push_back(controller.folder + controller.group + "/memory.pressure");
  }
  files.push_back(root + "/proc/pressure/memory");
  return files;
}

std::vector<std::string> memory_events_files(const std::string& root) {
  std::vector<std::string> files;
  for (const Controller& controller : controllers(root)) {
    if (!is_version_two(controller)) continue;
    for (const std::string& group : group_and_parents(controller))
      files.push_back(controller.folder + group + "/memory.events");
  }
  return files;
}

double read_memory_stall_percent(const std::string& root) {
  for (const std::string& file : memory_pressure_files(root)) {
    const Result<std::string> text = read_file(file);
    if (!text.is_ok()) continue;
    constexpr std::string_view kKey = "some avg10=";
    const std::size_t at = text->find(kKey);
    if (at == std::string::npos) continue;
    double percent = 0;
    const char* const begin = text->data() + at + kKey.size();
    const auto [last, error] = std::from_chars(begin, text->data() + text->size(), percent);
    if (error == std::errc{}) return percent;
  }
  return 0;
}

void return_free_heap() {
#ifdef __GLIBC__
  static_cast<void>(::malloc_trim(0));  // other allocators return it by themselves
#endif
}

}  // namespace entrepot::os
