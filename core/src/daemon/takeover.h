// Upgrade in place: the program of another build takes over a store's processes, and all that it holds stays.
//
//   daemon:  Upgrade asked ──open_program(): it may be run, and says that it has our formats──▶ the keeper gets it
//            ──the keeper has it──▶ answered, and ends as if it had died
//   keeper:  end-of-file of the daemon ──become()──▶ the same process runs the other program, which holds what we held
//            and starts its own daemon; that one adopts all, as after any death
//
// The keeper keeps its process number (it may be a service's or a container's first process). Whoever took over keeps a
// descriptor of the former program, and goes back to it if its first daemon dies young.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_channel.h"

namespace entrepot {

// What a build says when it is asked whether it could take a store over: its version, then the formats that keeper,
// daemon and memory share. Two builds whose formats are the same may follow each other.
[[nodiscard]] std::string takeover_line();

struct Program {
  UniqueFd fd;
  std::string version;
};
// `path`: absolute; a program of ours or root's that nobody else can write. `arguments`: those of this store, which it
// must understand. kInvalidArgument, kAccessDenied, or kVersionMismatch with both formats; nothing has changed then.
[[nodiscard]] Result<Program> open_program(const std::string& path, const std::vector<std::string>& arguments);

// Runs `program` in this process, as a keeper of what is `held`; it may go back to `former` (invalid: it may not).
// Returns only if that failed, and everything is as it was.
[[nodiscard]] Status become(const UniqueFd& program, const std::vector<std::string>& arguments,
                            const std::map<HeldTag, UniqueFd>& held, const UniqueFd& former);
// What become() left to this process; it was told of the descriptor by --estate-fd.
struct Estate {
  std::map<HeldTag, UniqueFd> held;
  UniqueFd former;
};
[[nodiscard]] Result<Estate> take_estate(UniqueFd list);

}  // namespace entrepot
