// The store's reservations: who may begin to store how much.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "store/store.h"

namespace entrepot {

void Store::reserve(const RequestOrigin& origin, std::uint32_t number, std::uint64_t bytes, std::uint64_t timeout_ms,
                    bool restores, ReserveDone done) {
  if (number == 0 || reservations_.find(origin, number) != nullptr || reservations_.is_waiting(origin, number)) {
    return done(
        Status(Code::kInvalidArgument, concat("reservation ", number, " of client ", origin.client,
                                              " exists already, or its number is 0: use a number that is not in use")));
  }
  if (reservations_.count_of(origin.client) >= Reservations::kMaxOfClient) {
    return done(Status(Code::kStoreFull, concat("client ", origin.client, " holds ", Reservations::kMaxOfClient,
                                                " reservations, and cannot have more: end those that are done")));
  }
  const std::uint64_t most = restores ? options_.capacity_bytes : admission_.reservable_ever();
  if (bytes > most) return done(admission_.never_reservable_error(bytes));
  const std::uint64_t now = clock_->monotonic_ns();
  if (bytes == 0 || restores) {
    reservations_.grant(origin, number, bytes, now);
    return done(Status::ok());
  }
  reservations_.wait({origin, deadline(timeout_ms), number, bytes, now, std::move(done)});
  try_reservations();
  if (timeout_ms == 0) tick();  // a request that does not wait is answered now
}

void Store::try_reservations() {
  rescan();
  reservations_.forget_freed();
  reservations_.grant_waiting(
      [this](std::uint32_t client, std::uint64_t bytes) { return admission_.reservable_now(client, bytes); },
      clock_->monotonic_ns());
  set_memory_wanted();
}

void Store::answer_overdue_reservations(std::uint64_t now_ns) {
  bool any = false;
  while (const std::optional<PendingReservation> request = reservations_.overdue(now_ns)) {
    request->done(admission_.not_reserved_error(*request));
    any = true;
  }
  if (any && reservations_.has_waiting()) try_reservations();  // the first may be gone, and those behind it fit
}

std::optional<Reservation> Store::reservation(const RequestOrigin& origin, std::uint32_t number) const {
  const Reservation* held = reservations_.find(origin, number);
  return held == nullptr ? std::nullopt : std::optional<Reservation>(*held);
}

std::optional<Reservation> Store::end_reservation(const RequestOrigin& origin, std::uint32_t number) {
  return reservations_.end(origin, number);  // run_pending() grants what that makes room for
}

// Only the new blobs, which come first in a record: an object also refers to those of others, which are there anyway.
void Store::charge_reservation(std::uint32_t client, const SealSpec& spec, std::uint32_t slot) {
  if (reservations_.count_of(client) == 0 || spec.blobs.empty()) return;
  const std::vector<std::uint32_t> all = parts_.catalog.blobs_of(slot);
  std::vector<NewlySealed> blobs;
  for (std::size_t i = 0; i < std::min(spec.blobs.size(), all.size()); ++i)
    blobs.push_back({all[i], parts_.blobs.generation(all[i]), parts_.blobs.extent_bytes(all[i])});
  reservations_.charge(client, blobs);
}

}  // namespace entrepot
