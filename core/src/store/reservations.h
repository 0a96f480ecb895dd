// Reservations: memory promised to clients for what they are going to store, and the requests that wait for a promise.
//
//   asked ──could never fit──▶ refused
//     ├──no bytes, or granted before a restart──▶ granted
//     └──▶ waiting ──first of all, and there is room──▶ granted ──ended, or its connection ends──▶ gone
//             ├──deadline──▶ refused
//             └──ended, or its connection ends──▶ gone
//
// A promise governs who may begin, not who gets memory: leases neither need one nor wait for one, so nothing that holds
// memory ever waits for a reservation of somebody else, unless it asks for one itself.
//
// A reservation counts in full while it is held. Blobs that its client seals are covered by it, up to its bytes: they
// take none of what is left beside the reservations, until they are freed or the reservation ends. Only new blobs are
// charged; an object that refers to blobs of others adds nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/types.h"
#include "store/wait_list.h"

namespace entrepot {

struct Reservation {
  std::uint64_t owner = 0;   // the connection
  std::uint32_t number = 0;  // chosen by the client
  std::uint64_t bytes = 0;
  std::uint64_t used = 0;     // new bytes that its client has sealed under it, whether or not they still exist
  std::uint64_t covered = 0;  // bytes of the blobs that it covers; at most `bytes`
  std::uint64_t since_ns = 0;
};

struct PendingReservation {
  RequestOrigin origin;
  std::uint64_t deadline_ns = 0;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t since_ns = 0;
  ReserveDone done;
};

// A blob that a client has just sealed.
struct NewlySealed {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
};

// Guarded by the daemon's thread. Callbacks run only after their request left the list, so they may issue requests.
class Reservations {
 public:
  static constexpr std::size_t kMaxOfClient = 256;  // granted ones

  // Whether a blob has not been freed.
  using BlobExists = std::function<bool(std::uint32_t blob, std::uint32_t generation)>;
  Reservations(MemoryBudget& budget, BlobExists exists) : budget_(&budget), exists_(std::move(exists)) {}
  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;

  // --- requests
  void grant(const RequestOrigin& origin, std::uint32_t number, std::uint64_t bytes, std::uint64_t now_ns);
  void wait(PendingReservation request) { waiting_.add(std::move(request)); }
  // Grants in the order of arrival, up to the first for which there is not enough room: no request overtakes another.
  // `room`: how many bytes a reservation of this client could have now, if it had these bytes.
  using Room = std::function<std::uint64_t(std::uint32_t client, std::uint64_t bytes)>;
  void grant_waiting(const Room& room, std::uint64_t now_ns);
  // Ends a granted one, which is returned, or a waiting one, which is refused with kTimeout. No effect on others.
  std::optional<Reservation> end(const RequestOrigin& origin, std::uint32_t number);
  void connection_ended(const RequestOrigin& origin);  // drops what waits, unanswered, and ends what was granted
  void client_died(std::uint32_t client);
  [[nodiscard]] std::optional<PendingReservation> overdue(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_deadline_ns() const { return waiting_.next_deadline_ns(); }

  // --- what clients store
  // Charges new blobs to the client's latest reservation that has bytes left, or to its latest.
  void charge(std::uint32_t client, const std::vector<NewlySealed>& blobs);
  void forget_freed();  // blobs that are gone are no longer covered

  // --- figures
  [[nodiscard]] bool has_granted() const { return !granted_.empty(); }
  [[nodiscard]] bool has_waiting() const { return !waiting_.empty(); }
  [[nodiscard]] const Reservation* find(const RequestOrigin& origin, std::uint32_t number) const;
  [[nodiscard]] bool is_waiting(const RequestOrigin& origin, std::uint32_t number) const;
  [[nodiscard]] std::size_t count_of(std::uint32_t client) const;
  [[nodiscard]] std::uint64_t bytes() const;                              // of all that are granted
  [[nodiscard]] std::uint64_t outstanding(std::uint32_t client) const;    // bytes that cover no blob yet
  [[nodiscard]] std::uint64_t covered(std::uint32_t blob) const;          // how many of its bytes are
  [[nodiscard]] std::uint64_t covered_bytes() const { return covered_; }  // of all blobs; exact after forget_freed()
  [[nodiscard]] const std::map<std::uint32_t, std::vector<Reservation>>& granted() const { return granted_; }
  [[nodiscard]] const WaitList<PendingReservation>& waiting() const { return waiting_; }

 private:
  struct Cover {
    std::uint32_t generation = 0;
    std::uint32_t client = 0;
    std::uint64_t owner = 0;
    std::uint32_t number = 0;
    std::uint64_t bytes = 0;
  };
  using Covers = std::unordered_map<std::uint32_t, Cover>;

  Reservation* find_granted(const RequestOrigin& origin, std::uint32_t number);
  Covers::iterator uncover(Covers::iterator cover);
  void uncover_all_of(std::uint32_t client, const Reservation& reservation);

  MemoryBudget* budget_;
  BlobExists exists_;
  std::map<std::uint32_t, std::vector<Reservation>> granted_;  // by client, oldest first; never empty vectors
  WaitList<PendingReservation> waiting_;
  Covers covers_;  // by blob; may contain freed ones, at most as many again as there were at the last forget_freed()
  std::size_t forget_at_ = 0;  // size of covers_
  std::uint64_t covered_ = 0;  // sum of covers_
};

}  // namespace entrepot
