// Size units of the tests.
#pragma once

#include <cstdint>

namespace entrepot::testing {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;

}  // namespace entrepot::testing
