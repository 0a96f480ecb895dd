// Upgrade in place: a program of another build takes over a store's processes, and everything it holds stays.
//
//   daemon:  Upgrade requested ──open_program(): it may be run, and reports our formats──▶ sent to the keeper
//            ──the keeper has it──▶ the request is answered, and no client accepted any more ──HandOver──▶ keeper
//   keeper:  kills the daemon ──gone──▶ exec_successor() ──▶ the same process runs the other program, which
//            holds what we held and starts its own daemon; that daemon adopts everything, as after any death
//
// The keeper ends the daemon, so that one of the two always lives: if the keeper dies first, the daemon continues.
// The keeper keeps its process number (it may be a service's or a container's first process). The new program keeps a
// descriptor of the previous one, and rolls back to it if its first daemon cannot be started or dies early.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "daemon/keeper_channel.h"
#include "os/unique_fd.h"

namespace entrepot {

// Output of a build that is asked whether it could take a store over: its version, then the formats shared by keeper,
// daemon and memory. Builds with the same formats may replace each other.
[[nodiscard]] std::string candidate_reply();

struct Program {
  UniqueFd fd;
  std::string version;
};
// `path`: absolute; a program owned by us or root that nobody else can write. `arguments`: those of this store, which
// it must accept. kInvalidArgument, kAccessDenied, or kVersionMismatch with both formats; nothing has changed then.
[[nodiscard]] Result<Program> open_program(const std::string& path, const std::vector<std::string>& arguments);

// Runs `program` in this process, as a keeper of `descriptors`; it may roll back to `previous_program` (invalid: it may
// not). Returns only if that failed, with nothing changed.
[[nodiscard]] Status exec_successor(const UniqueFd& program, const std::vector<std::string>& arguments,
                                    const std::map<DescriptorTag, UniqueFd>& descriptors,
                                    const UniqueFd& previous_program);
// State that exec_successor() left to this process; --handover-fd gives its descriptor.
struct HandoverState {
  std::map<DescriptorTag, UniqueFd> descriptors;
  UniqueFd previous_program;
};
[[nodiscard]] Result<HandoverState> read_handover(UniqueFd list);

}  // namespace entrepot
