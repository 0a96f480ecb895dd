#include "client/daemon_timeout.h"

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "os/error.h"
#include "os/files.h"

namespace entrepot {
namespace {

// State from /proc (see proc(5)), if this process belongs to a store: the number may come from another container and
// mean any process here.
std::optional<char> state_of(std::uint32_t pid) {
  if (pid == 0) return std::nullopt;
  const std::string folder = concat("/proc/", pid);
  const auto words = os::read_file(folder + "/cmdline");
  if (!words.is_ok() || words->find("entrepotd") == std::string::npos) return std::nullopt;
  const auto stat = os::read_file(folder + "/stat");
  if (!stat.is_ok()) return std::nullopt;
  const std::size_t name_ends = stat->rfind(')');
  if (name_ends == std::string::npos || name_ends + 2 >= stat->size()) return std::nullopt;
  return (*stat)[name_ends + 2];
}

std::vector<std::uint32_t> children_of(std::uint32_t pid) {
  std::vector<std::uint32_t> children;
  const auto text = os::read_file(concat("/proc/", pid, "/task/", pid, "/children"));
  if (!text.is_ok()) return children;  // not supported by this kernel
  std::istringstream numbers(*text);
  for (std::uint32_t child = 0; numbers >> child;)
    children.push_back(child);
  return children;
}

}  // namespace

Status daemon_timeout_error(std::uint32_t peer, std::uint32_t daemon, std::uint64_t waited_ms) {
  std::vector<std::uint32_t> candidates;
  if (peer > 0 && daemon > 0) candidates.push_back(daemon);
  if (peer > 0) {
    candidates.push_back(peer);
    for (const std::uint32_t child : children_of(peer))
      candidates.push_back(child);
  }
  const std::string within = concat("did not respond within ", static_cast<double>(waited_ms / 100) / 10, " s");
  std::uint32_t runs = 0;
  for (const std::uint32_t pid : candidates) {
    const auto state = state_of(pid);
    if (!state) continue;
    if (*state == 'T' || *state == 't') {
      return {Code::kTimeout,
              concat("the daemon ", within, ", because process ", pid,
                     " of this store is stopped (SIGSTOP, a debugger): resume it with 'kill -CONT ", pid,
                     "' and try again"),
              true};
    }
    if (const std::uint64_t limit = os::exhausted_descriptor_limit(pid); limit != 0) {
      return {Code::kTimeout,
              concat("the daemon ", within, ": process ", pid,
                     " of this store has used all of its file descriptors, limit ", limit,
                     " (ulimit -n): end clients that no longer need it, or start it with a higher limit"),
              true};
    }
    if (runs == 0 || runs == peer) runs = pid;
  }
  const std::string who = runs == 0 ? "the daemon " : concat("the daemon (process ", runs, ") ");
  return {Code::kTimeout,
          concat(who, within,
                 ": it or this machine is overloaded, or its control group is frozen; see 'entrepot status' and "
                 "'entrepot logs', and try again"),
          true};
}

}  // namespace entrepot
