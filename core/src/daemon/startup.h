// Startup of the daemon: takes over what the keeper holds, opens the store, new or adopted, and serves it.
#pragma once

#include "base/status.h"
#include "daemon/config.h"
#include "os/unique_fd.h"

namespace entrepot {

// kInvalidArgument if the requested capacity is below the minimum, or above what the machine or control group has.
[[nodiscard]] Status check_capacity(const DaemonConfig& config);

// Runs until a clean shutdown or a hand-over; returns the exit code. After another, the keeper starts the next daemon.
[[nodiscard]] int run_server(const DaemonConfig& config, UniqueFd keeper_channel);

}  // namespace entrepot
