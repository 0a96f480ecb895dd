// The server: the event loop of the daemon's process, between sockets, keeper, provisioner and store.
#pragma once

#include "base/status.h"
#include "daemon/config.h"
#include "daemon/keeper_link.h"

namespace entrepot {

// kInvalidArgument if the capacity asked for is below the least, or more than the machine or control group has.
[[nodiscard]] Status check_capacity(const DaemonConfig& config);

// Runs until a clean stop; the exit code.
[[nodiscard]] int run_server(const DaemonConfig& config, KeeperLink link);

}  // namespace entrepot
