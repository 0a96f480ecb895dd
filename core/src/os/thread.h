// Starts threads of daemon and keeper. std::thread throws where the system has none left, which would end the process.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace entrepot::os {

// Error for a thread or a process that could not be started; for EAGAIN it names the limits to raise (ulimit -u).
// Always kStoreUnavailable and retryable: others may end. `what` completes "cannot start ".
[[nodiscard]] Status not_started(int error, std::string_view what);

// The thread inherits this thread's signal mask. `what` is for the error: "a thread that ...".
[[nodiscard]] Result<std::thread> start_thread(std::string_view what, std::function<void()> run);

}  // namespace entrepot::os
