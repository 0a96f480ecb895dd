// The deadline of what a test waits for: passed only where something hangs.
#pragma once

#include "os/clock.h"

namespace entrepot::os {

inline Deadline soon() { return Deadline::after_ms(20'000); }

}  // namespace entrepot::os
