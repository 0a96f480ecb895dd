#include "store/reservations.h"

#include <algorithm>
#include <utility>

namespace entrepot {
namespace {

constexpr std::size_t kForgetAtLeast = 1024;
constexpr std::uint64_t kHeapBytesPerCover = 64;

}  // namespace

void Reservations::grant(const RequestOrigin& origin, std::uint32_t number, std::uint64_t bytes, std::uint64_t now_ns) {
  granted_[origin.client].push_back({origin.owner, number, bytes, 0, 0, now_ns});
}

void Reservations::grant_waiting(const Room& room, std::uint64_t now_ns) {
  while (!waiting_.empty()) {
    const auto first = waiting_.begin();
    if (first->bytes > room(first->origin.client, first->bytes)) return;
    const PendingReservation request = waiting_.take(first);
    grant(request.origin, request.number, request.bytes, now_ns);
    request.done(Status::ok());
  }
}

std::optional<Reservation> Reservations::end(const RequestOrigin& origin, std::uint32_t number) {
  const auto waits = [&](const PendingReservation& request) {
    return request.origin.owner == origin.owner && request.number == number;
  };
  for (const PendingReservation& request : waiting_.take_if(waits))
    request.done(Status(Code::kTimeout, "the reservation was ended while it waited for memory", true));
  const auto of_client = granted_.find(origin.client);
  if (of_client == granted_.end()) return std::nullopt;
  std::vector<Reservation>& all = of_client->second;
  const auto ended = std::find_if(all.begin(), all.end(), [&](const Reservation& reservation) {
    return reservation.owner == origin.owner && reservation.number == number;
  });
  if (ended == all.end()) return std::nullopt;
  const Reservation result = *ended;
  uncover_all_of(origin.client, result);
  all.erase(ended);
  if (all.empty()) granted_.erase(of_client);
  return result;
}

void Reservations::connection_ended(const RequestOrigin& origin) {
  static_cast<void>(
      waiting_.take_if([&](const PendingReservation& request) { return request.origin.owner == origin.owner; }));
  const auto of_client = granted_.find(origin.client);
  if (of_client == granted_.end()) return;
  std::erase_if(of_client->second, [&](const Reservation& reservation) {
    if (reservation.owner != origin.owner) return false;
    uncover_all_of(origin.client, reservation);
    return true;
  });
  if (of_client->second.empty()) granted_.erase(of_client);
}

void Reservations::client_died(std::uint32_t client) {
  static_cast<void>(
      waiting_.take_if([&](const PendingReservation& request) { return request.origin.client == client; }));
  const auto of_client = granted_.find(client);
  if (of_client == granted_.end()) return;
  for (const Reservation& reservation : of_client->second)
    uncover_all_of(client, reservation);
  granted_.erase(of_client);
}

std::optional<PendingReservation> Reservations::overdue(std::uint64_t now_ns) {
  const auto overdue = waiting_.overdue(now_ns);
  return overdue ? std::optional<PendingReservation>(waiting_.take(*overdue)) : std::nullopt;
}

// --- what clients store

void Reservations::charge(std::uint32_t client, const std::vector<NewlySealed>& blobs) {
  const auto of_client = granted_.find(client);
  if (of_client == granted_.end()) return;
  std::vector<Reservation>& all = of_client->second;
  for (const NewlySealed& sealed : blobs) {
    if (covers_.size() >= std::max(forget_at_, kForgetAtLeast)) forget_freed();
    if (const auto stale = covers_.find(sealed.blob); stale != covers_.end()) uncover(stale);  // its number is reused
    const auto has_left = std::find_if(all.rbegin(), all.rend(), [](const Reservation& reservation) {
      return reservation.covered < reservation.bytes;
    });
    Reservation& reservation = has_left == all.rend() ? all.back() : *has_left;
    reservation.used += sealed.bytes;
    const std::uint64_t bytes = std::min(sealed.bytes, reservation.bytes - reservation.covered);
    if (bytes == 0) continue;
    covers_.emplace(sealed.blob, Cover{sealed.generation, client, reservation.owner, reservation.number, bytes});
    budget_->charge(BudgetItem::kHeap, kHeapBytesPerCover);
    reservation.covered += bytes;
    covered_ += bytes;
  }
}

void Reservations::forget_freed() {
  for (auto cover = covers_.begin(); cover != covers_.end();)
    cover = exists_(cover->first, cover->second.generation) ? std::next(cover) : uncover(cover);
  forget_at_ = 2 * covers_.size();
}

Reservations::Covers::iterator Reservations::uncover(Covers::iterator cover) {
  const Cover& gone = cover->second;
  if (Reservation* reservation = find_granted({gone.client, gone.owner}, gone.number))
    reservation->covered -= gone.bytes;
  covered_ -= gone.bytes;
  budget_->release(BudgetItem::kHeap, kHeapBytesPerCover);
  return covers_.erase(cover);
}

void Reservations::uncover_all_of(std::uint32_t client, const Reservation& reservation) {
  if (reservation.covered == 0) return;
  std::uint64_t entries = 0;
  std::erase_if(covers_, [&](const Covers::value_type& entry) {
    const Cover& cover = entry.second;
    if (cover.client != client || cover.owner != reservation.owner || cover.number != reservation.number) return false;
    covered_ -= cover.bytes;
    ++entries;
    return true;
  });
  budget_->release(BudgetItem::kHeap, entries * kHeapBytesPerCover);
}

// --- figures

Reservation* Reservations::find_granted(const RequestOrigin& origin, std::uint32_t number) {
  return const_cast<Reservation*>(find(origin, number));
}

const Reservation* Reservations::find(const RequestOrigin& origin, std::uint32_t number) const {
  const auto of_client = granted_.find(origin.client);
  if (of_client == granted_.end()) return nullptr;
  for (const Reservation& reservation : of_client->second) {
    if (reservation.owner == origin.owner && reservation.number == number) return &reservation;
  }
  return nullptr;
}

bool Reservations::is_waiting(const RequestOrigin& origin, std::uint32_t number) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const PendingReservation& request) {
    return request.origin.owner == origin.owner && request.number == number;
  });
}

std::size_t Reservations::count_of(std::uint32_t client) const {
  const auto of_client = granted_.find(client);
  return of_client == granted_.end() ? 0 : of_client->second.size();
}

std::uint64_t Reservations::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [client, all] : granted_) {
    for (const Reservation& reservation : all)
      bytes += reservation.bytes;
  }
  return bytes;
}

std::uint64_t Reservations::outstanding(std::uint32_t client) const {
  std::uint64_t bytes = 0;
  if (const auto of_client = granted_.find(client); of_client != granted_.end()) {
    for (const Reservation& reservation : of_client->second)
      bytes += reservation.bytes - reservation.covered;
  }
  return bytes;
}

std::uint64_t Reservations::covered(std::uint32_t blob) const {
  const auto cover = covers_.find(blob);
  return cover == covers_.end() ? 0 : cover->second.bytes;
}

}  // namespace entrepot
