// Lease constants shared by daemon and clients.
#pragma once

#include <cstdint>

namespace entrepot {

// Granularity of partial returns of a lease: a returned range begins and ends on multiples of this, so that the
// daemon's lease bookkeeping does not grow with what the client wrote.
inline constexpr std::uint64_t kReturnGranule = 64U << 10;

}  // namespace entrepot
