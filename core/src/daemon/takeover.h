// Upgrade in place: a program of another build takes over a store's processes, and everything it holds stays.
//
//   daemon:  Upgrade requested ──open_program(): it may be run, and reports our formats──▶ sent to the keeper
//            ──the keeper has it──▶ the request is answered, and the daemon ends as if it had died
//   keeper:  end-of-file from the daemon ──become()──▶ the same process runs the other program, which holds what we
//            held and starts its own daemon; that daemon adopts everything, as after any death
//
// The keeper keeps its process number (it may be a service's or a container's first process). The new program keeps a
// descriptor of the former one, and goes back to it if its first daemon dies young.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_channel.h"

namespace entrepot {

// Output of a build that is asked whether it could take a store over: its version, then the formats shared by keeper,
// daemon and memory. Builds with the same formats may replace each other.
[[nodiscard]] std::string takeover_line();

struct Program {
  UniqueFd fd;
  std::string version;
};
// `path`: absolute; a program owned by us or root that nobody else can write. `arguments`: those of this store, which
// it must accept. kInvalidArgument, kAccessDenied, or kVersionMismatch with both formats; nothing has
// changed then.
[[nodiscard]] Result<Program> open_program(const std::string& path, const std::vector<std::string>& arguments);

// Runs `program` in this process, as a keeper of `held`; it may go back to `former` (invalid: it may not). Returns only
// if that failed, with nothing changed.
[[nodiscard]] Status become(const UniqueFd& program, const std::vector<std::string>& arguments,
                            const std::map<HeldTag, UniqueFd>& held, const UniqueFd& former);
// State that become() left to this process; --estate-fd gives its descriptor.
struct Estate {
  std::map<HeldTag, UniqueFd> held;
  UniqueFd former;
};
[[nodiscard]] Result<Estate> take_estate(UniqueFd list);

}  // namespace entrepot
