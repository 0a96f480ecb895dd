// Requests that make the store's tables grow: answered at once, or when there is room for them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "daemon/request.h"
#include "store/store.h"

namespace entrepot {

// Whether an attempt that ended like this is to be repeated later.
[[nodiscard]] inline bool awaits_room(const Store& store, Code code, bool last) {
  return !last && code == Code::kStoreFull && store.room_is_coming();
}

// `attempt(to, last)` tries to serve the request and answers to `to`, a Request or a HeldRequest. It returns whether it
// did; unless `last`, it may decline if awaits_room().
template <class Attempt>
void serve_when_room(Store& store, Request& request, Attempt attempt, std::uint64_t cost = kWaiterCost) {
  if (attempt(request, false)) return;
  const std::optional<HeldRequest> held = request.try_hold(cost);
  if (!held) {
    static_cast<void>(attempt(request, true));
    return;
  }
  store.when_room(request.origin(),
                  [held = *held, attempt = std::move(attempt)](bool last) mutable { return attempt(held, last); });
}

}  // namespace entrepot
