// Read-ahead: predicts which objects will be read next. It follows runs of uses in the order of sealing within a
// locality set, forward or backward, by one reader or by several that share the work.
//
//   a run: begun (one use) ─┬─two steps to neighbors──────▶ known: reads ahead
//                           └─its set is declared a scan──▶ known at once
//          known ─┬─its reader is elsewhere──▶ has to be confirmed again
//                 └─no use for two seconds───▶ inactive
//
// A reader may be on two runs at a time (two inputs read side by side), and up to four readers on one run. This class
// only predicts; the pager loads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "shm/locality.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ReadAhead {
 public:
  // Registers an object whose payload can leave memory. `order`: unique, increases with each seal.
  void add(std::uint32_t slot, std::uint32_t set, std::uint32_t order);
  void remove(std::uint32_t slot);
  void trim_slots(std::uint32_t end);  // no object has this slot or a higher one: returns what they needed
  void move(std::uint32_t slot, std::uint32_t set);

  // Somebody reads or requests the object. `declared`: the declared access pattern of its set.
  void touch(std::uint32_t slot, std::uint32_t reader, ReadPattern declared, std::uint64_t now_ns);

  // Calls begin(number of runs) for each run, most recently used first, then visit(slot) for the objects that follow on
  // it, nearest first, until visit returns false.
  template <class Begin, class Visit>
  void for_each_ahead(std::uint64_t now_ns, Begin&& begin, Visit&& visit) const {
    const std::vector<const Run*> runs = active(now_ns);
    for (const Run* run : runs) {
      begin(runs.size());
      auto at = by_seal_order_.find({run->set, run->order});
      while (next(at, *run) && visit(at->second)) {
      }
    }
  }
  [[nodiscard]] bool is_active(std::uint64_t now_ns) const { return !active(now_ns).empty(); }
  // Number of steps of all runs; when it changes, there may be something new to read ahead.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  using SealOrder = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;  // (set, order) -> slot
  struct SlotState {
    std::uint32_t set = 0;
    std::uint32_t order = 0;
    bool used = false;
  };
  static constexpr std::uint32_t kNobody = 0xffff'ffffU;
  struct Run {
    std::uint32_t set = 0;
    std::uint32_t order = 0;  // of the last use
    std::array<std::uint32_t, 4> readers{kNobody, kNobody, kNobody, kNobody};
    std::uint32_t steps = 0;  // to direct neighbors, since one of its readers was elsewhere
    bool used = false;
    bool backward = false;
    bool declared = false;
    std::uint64_t used_ns = 0;
  };

  [[nodiscard]] std::vector<const Run*> active(std::uint64_t now_ns) const;
  [[nodiscard]] bool next(SealOrder::const_iterator& at, const Run& run) const;
  [[nodiscard]] std::uint32_t distance(const Run& from, std::uint32_t order) const;
  [[nodiscard]] bool advance(Run& run, std::uint32_t order) const;
  [[nodiscard]] static bool has_reader(const Run& run, std::uint32_t reader);
  [[nodiscard]] bool advance_own_run(std::uint32_t set, std::uint32_t order, std::uint32_t reader,
                                     std::uint64_t now_ns);
  [[nodiscard]] bool join(std::uint32_t set, std::uint32_t order, std::uint32_t reader, std::uint64_t now_ns);
  [[nodiscard]] std::uint32_t detach_reader(std::uint32_t set, std::uint32_t reader);
  [[nodiscard]] Run& replaceable(std::uint32_t set, std::uint32_t reader, std::uint32_t has);

  SealOrder by_seal_order_;
  std::vector<SlotState> slots_;
  std::array<Run, 8> runs_;
  std::uint64_t steps_ = 0;
};

}  // namespace entrepot
