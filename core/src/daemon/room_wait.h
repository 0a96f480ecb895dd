// Requests that make the store's tables grow: answered at once, or when there is room for them. And requests after which
// a name or an ID leads elsewhere than the manifest on disk says: answered once that is written.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
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

// Together less than a client waits for an answer.
inline constexpr std::uint64_t kRecordWaitMs = 20'000;
inline constexpr std::uint64_t kRecordWaitAfterRoomMs = 8'000;

// `answer(to, recorded)` answers to `to`, now or when the record is written; `recorded` is not ok if it was not, in time.
template <class To, class Answer>
void answer_when_recorded(Store& store, To& to, const RequestOrigin& origin, std::uint64_t record, Answer answer,
                          std::uint64_t cost = kWaiterCost) {
  if (store.is_recorded(record)) return answer(to, Status::ok());
  if constexpr (std::is_same_v<std::remove_const_t<To>, Request>) {
    const std::optional<HeldRequest> held = to.try_hold(cost);
    if (!held) return answer(to, store.unrecorded_error("too many requests of this connection wait already"));
    store.when_recorded(
        origin, record, kRecordWaitMs,
        [held = *held, answer = std::move(answer)](const Status& recorded) mutable { answer(held, recorded); });
  } else {
    store.when_recorded(
        origin, record, kRecordWaitAfterRoomMs,
        [held = to, answer = std::move(answer)](const Status& recorded) mutable { answer(held, recorded); });
  }
}

}  // namespace entrepot
