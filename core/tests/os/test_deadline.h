// Deadline for anything that a test waits for; it passes only if something hangs.
#pragma once

#include "os/clock.h"

namespace entrepot::os {

inline Deadline test_deadline() { return Deadline::after_ms(20'000); }

}  // namespace entrepot::os
