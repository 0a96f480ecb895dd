// Surplus memory: free segments beyond the warm target. They are given back to the machine when none was taken for a
// while, in steps, so that the thread that does it is free in between.
//
//   none ──a segment was freed──▶ calm? ──long enough──▶ given back, step by step ──no more──▶ none
//                                 ▲   │                    │
//                                 └───┴──one was taken, ───┘
//                                        or a request waits
#pragma once

#include <cstdint>
#include <functional>

#include "base/timers.h"
#include "store/memory/segment_pool.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SurplusMemory {
 public:
  struct Deps {  // all must outlive it
    SegmentPool& pool;
    Timers& timers;
    const Clock& clock;
    std::uint64_t give_back_after_seconds = 0;  // 0: never
    std::function<bool()> is_awaited;           // whether a request waits for memory
  };
  explicit SurplusMemory(Deps deps);

  // Notices segments that were taken and freed. Call after each turn's work.
  void track();

 private:
  // Whether any were since the last look.
  struct Changes {
    bool taken = false;
    bool freed = false;
  };
  [[nodiscard]] Changes look();
  void postpone();
  void give_back();

  Deps deps_;
  std::uint64_t taken_;  // the pool's counters, at the last look
  std::uint64_t freed_;
  Timers::Timer timer_;  // armed while there may be something to give back
};

}  // namespace entrepot
