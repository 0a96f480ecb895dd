// Surplus memory: free segments beyond what is made ahead of demand. What was in use lately (WarmDemand) stays for the
// next puts; the rest is given back to the machine, in steps, so that the thread that does it is free in between. If
// the machine runs short of memory, nothing is kept. Nor is what writers that are gone have left free between their
// values, in any case: no put could use it.
//
//   none ──a segment was taken, made or freed, or lost its writer──▶ settling ──a second later──▶ looked at, every second
//    ▲                                                                          │     ▲   │
//    ├──────────no free segment is left but those made ahead of demand──────────┘     │   │ too much is kept
//    │                                                                                │   ▼
//    └────────────────────────────the same────────────────────────── given back, step by step
//
// While there is something to look at, the memory source tells of pressure, and then the next look is at once:
//
//   looked at, every second ──processes wait for memory──▶ given back, and nothing is kept
//                           └──a control group has reached a limit──▶ looked at: it may be due to its page cache
//
// A request that waits for memory puts each look off: it takes what is free, or has it given back itself.
#pragma once

#include <cstdint>
#include <functional>

#include "base/timers.h"
#include "store/memory/segment_pool.h"
#include "store/memory/warm_demand.h"
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

  // Notices what was taken, made and freed. Call after each turn's work.
  void track();

  // Others need memory: looks soon, and if processes wait for memory already, keeps nothing. Does nothing if nothing is
  // free beyond the warm target.
  void others_need_memory(bool is_stalled);

  [[nodiscard]] std::uint64_t kept_bytes() const { return demand_.kept_bytes(); }  // beyond the warm target

 private:
  struct Counters {  // the pool's
    std::uint64_t taken = 0;
    std::uint64_t freed = 0;
    std::uint64_t orphaned = 0;
    std::uint64_t committed_bytes = 0;
    bool operator==(const Counters&) const = default;
  };
  [[nodiscard]] Counters read() const;
  void look();
  void look_at(std::uint64_t time_ns);
  void look_no_more();

  Deps deps_;
  WarmDemand demand_;
  Counters seen_;                  // at the last track()
  bool started_ = false;           // whether track() was called
  Timers::Timer timer_;            // armed while there may be something to give back
  std::uint64_t looked_ns_ = 0;    // when last
  bool follows_pressure_ = false;  // as long as the timer is armed
};

}  // namespace entrepot
