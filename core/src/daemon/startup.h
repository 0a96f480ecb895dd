// Server: the daemon's event loop, between sockets, keeper, provisioner and store.
#pragma once

#include "base/status.h"
#include "daemon/config.h"
#include "daemon/keeper_link.h"

namespace entrepot {

// kInvalidArgument if the requested capacity is below the minimum, or above what the machine or control group has.
[[nodiscard]] Status check_capacity(const DaemonConfig& config);

// Runs until a clean shutdown; returns the exit code.
[[nodiscard]] int run_server(const DaemonConfig& config, KeeperLink link);

}  // namespace entrepot
