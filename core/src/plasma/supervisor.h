// Supervisor: keeps a front end running beside a store.
//
//   running ──it died──▶ pause, longer each time if it died early ──▶ running
//      ├──the first one could not start──▶ ended
//      ├──it ended because its store is gone, or its arguments are wrong──▶ ended
//      ├──SIGTERM, SIGINT: passed on──▶ ended
//      └──this process dies: the front end is killed──▶ ended
#pragma once

#include <string>
#include <vector>

namespace entrepot::plasma {

inline constexpr int kExitCannotStart = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoStore = 3;  // it has ended; one that does not answer may do so later: kExitCannotStart
inline constexpr int kExitFailed = 4;

// Runs this program again with these arguments, as often as it dies. Returns the exit code of this process.
[[nodiscard]] int supervise(const std::vector<std::string>& arguments);

}  // namespace entrepot::plasma
