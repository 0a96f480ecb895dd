// Points at which a test may interrupt the daemon, to check how the control memory is adopted in exactly that state.
// Compiled only into test builds (ENTREPOT_SYNC_POINTS); expands to nothing in the product.
#pragma once

#ifdef ENTREPOT_SYNC_POINTS
#include <functional>
#include <string_view>

namespace entrepot {
inline std::function<void(std::string_view)> sync_hook;  // guarded by: tests are single-threaded
}  // namespace entrepot
#define ENTREPOT_SYNC_POINT(name)                           \
  do {                                                      \
    if (::entrepot::sync_hook) ::entrepot::sync_hook(name); \
  } while (false)
#else
#define ENTREPOT_SYNC_POINT(name) \
  do {                            \
  } while (false)
#endif
