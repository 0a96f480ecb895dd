// Table room: room for the tables that grow with what is stored: records, slots, blobs, index, names, sets, consumptions,
// clients.
//
//   refused ──unneeded pages, free segments, clean objects──▶ room is made ──▶ tried again
//      ├──objects must be written first, or leases returned──▶ coming: the request may wait for that, and try again
//      └──nothing can leave at all──▶ none: the refusal stands
//
// New segments leave head-room, so that this seldom happens; and when the tables have used it up, objects are evicted
// for it ahead of the next request:
//
//   head-room: enough ──less than half is free──▶ being restored ──all of it is free, or nothing can leave──▶ enough
#pragma once

#include <cstdint>

#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/memory/segment_pool.h"
#include "store/object/consumer_table.h"
#include "store/object/object_parts.h"
#include "store/paging/pager.h"
#include "store/session/name_table.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class TableRoom {
 public:
  struct Deps {  // all must outlive it
    const StoreOptions& options;
    const Clock& clock;
    MemoryBudget& budget;
    SegmentPool& pool;
    ObjectParts& parts;
    NameTable& names;
    ConsumerTable& consumers;
    Pager& pager;
  };
  explicit TableRoom(const Deps& deps) : deps_(deps) {}

  // Calls attempt(), which returns a Status, a Result or a SealOutcome, and again as long as it is refused and room can
  // be made.
  template <class Attempt>
  auto with_room(const Attempt& attempt) -> decltype(attempt());
  // Whether what with_room() just refused may succeed later, without anybody's doing.
  [[nodiscard]] bool is_coming() const { return is_coming_; }

  [[nodiscard]] std::uint64_t headroom_bytes()
      const;             // that segments should leave free; 0 in a store that cannot spill
  void keep_headroom();  // call after each turn's work
  // Returns pages that tables no longer need to the system; returns the number of bytes.
  std::uint64_t trim();

 private:
  enum class Room : std::uint8_t { kMade, kComing, kNone };
  [[nodiscard]] Room make();  // for what the budget refused last
  [[nodiscard]] bool holds_unsealed_memory() const;

  static const Status& status_of(const Status& status) { return status; }
  static const Status& status_of(const SealOutcome& outcome) { return outcome.status; }
  template <class T>
  static Status status_of(const Result<T>& result) {
    return result.status();
  }

  Deps deps_;
  bool is_coming_ = false;
  bool restores_headroom_ = false;
  std::uint64_t wanted_bytes_ = 0;  // by tables that did without
  std::uint64_t next_restore_ns_ = 0;
};

template <class Attempt>
auto TableRoom::with_room(const Attempt& attempt) -> decltype(attempt()) {
  constexpr int kMaxAttempts = 16;  // an object makes fewer tables grow
  static_cast<void>(deps_.budget.take_refused());
  auto outcome = attempt();
  is_coming_ = false;
  for (int again = 0; again < kMaxAttempts && status_of(outcome).code() == Code::kStoreFull; ++again) {
    const Room room = make();
    is_coming_ = room == Room::kComing;
    if (room != Room::kMade) return outcome;
    outcome = attempt();
  }
  // It was done without the memory that a better index needs, for example.
  if (const std::uint64_t refused = deps_.budget.take_refused(); refused != 0) wanted_bytes_ = refused;
  return outcome;
}

}  // namespace entrepot
