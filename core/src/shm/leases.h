// Lease constants shared by daemon and clients.
#pragma once

#include <cstdint>

namespace entrepot {

// Granularity of partial returns of a lease: a returned range begins and ends on multiples of this, so that the
// daemon's lease bookkeeping does not grow with what the client wrote.
inline constexpr std::uint64_t kReturnGranule = 64U << 10;

// Bit of Root.memory_wanted, beside those of the layout: memory is being provisioned because somebody requested a lease.
// A hint for clients that can do without; daemons that do not have it never set it.
inline constexpr std::uint32_t kProvisioningForLeases = 4;

}  // namespace entrepot
