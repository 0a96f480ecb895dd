// Random bytes from the kernel.
#pragma once

#include <cstdint>
#include <span>

#include "base/id.h"

namespace entrepot::os {

// Fills `out`. Aborts with a message if the kernel provides no random bytes, because IDs could then collide.
void fill_random(std::span<std::uint8_t> out);
[[nodiscard]] std::uint64_t random_u64();  // never 0, so that 0 can mean "none" in tokens
[[nodiscard]] IdBytes random_id();
[[nodiscard]] InstanceId random_instance();

}  // namespace entrepot::os
