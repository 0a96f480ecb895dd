// Reservations: memory that the store promises this process for what it is going to seal.
#include "client/client.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kEndMs = 1'000;

}  // namespace

Result<std::uint32_t> Client::reserve(std::uint64_t bytes, const Wait& wait, const Interrupt& interrupt) {
  const std::uint32_t number = last_reservation_.fetch_add(1, std::memory_order_relaxed) + 1;
  // Sent again if the connection ends: until it is answered, nobody holds it.
  auto granted = call(MessageType::kReserve, to_wire(ReserveRequest{number, bytes, wait.remaining_ms(), 0}),
                      wait_options(wait, 0, interrupt));
  if (!granted.is_ok()) {
    // Nobody waits for it any more, but it may stand in line, or have been granted just now.
    if (granted.code() == Code::kTimeout) end_reservation(number);
    return granted.status();
  }
  const std::lock_guard lock(mutex_);
  reservations_[number] = bytes;
  return number;
}

Result<ReservationReply> Client::reservation(std::uint32_t number, const Interrupt& interrupt) {
  return request_reply<ReservationReply>(MessageType::kReservation, ReservationRequest{number, 0},
                                         wait_options(0, interrupt));
}

std::optional<ReservationReply> Client::end_reservation(std::uint32_t number) {
  CallOptions options;
  options.deadline = os::Deadline::after_ms(kEndMs);
  {
    const std::lock_guard lock(mutex_);
    reservations_.erase(number);  // so that it is not restored after a reconnect
    if (state_ == State::kConnected) options.only_on = connection_;
  }
  if (!options.only_on || options.only_on->broken()) return std::nullopt;  // it has ended with the connection
  const auto ended = request_reply<ReservationReply>(MessageType::kReservation, ReservationRequest{number, 1}, options);
  return ended.is_ok() && ended->held != 0 ? std::optional<ReservationReply>(*ended) : std::nullopt;
}

}  // namespace entrepot
