// Leases, as daemon and clients speak of them.
#pragma once

#include <cstdint>

namespace entrepot {

// What a client gives back of a lease begins and ends on multiples of this, so that the daemon's knowledge of what is
// leased does not grow with what a client makes of it.
inline constexpr std::uint64_t kReturnGranule = 64U << 10;

}  // namespace entrepot
