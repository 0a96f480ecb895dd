// Segment provisioning: asks the memory source for new segments, for requests and ahead of demand.
//
// What the machine can provide:
//
//   the full capacity ──a segment could not be made──▶ short: what is committed, plus half of what was refused
//           ▲                                            │  ▲ (so the next attempt is smaller, and finally none)
//           └────────retry_memory(), seconds later───────┘  └──the next one could not be made either
//
// While it is short, values are placed as in a store of that size: in free memory, or by evicting others.
//
// Ahead of demand, top_up() makes one segment at a time, of those that SegmentSizes finds missing:
//
//   making ──none is missing, or the capacity is in use──▶ done for good; what is taken later is still replaced
//   making, done ──a segment could not be made──▶ stopped; warm_note() says why ──retry_memory()──▶ as before
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/memory/live_segments.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_sizes.h"

namespace entrepot {

// State of a request for memory that could not be answered at once: the segment being made for it. Guarded by the
// daemon's thread.
struct LeaseWait {
  std::uint32_t segment = kNoSegment;
};

// Guarded by the daemon's thread.
class SegmentProvisioning {
 public:
  // They must outlive it.
  SegmentProvisioning(LiveSegments& live, MemorySource& source, const MemoryBudget& budget, const SegmentSizes& sizes);

  // --- for a request
  // Starts making a segment for the request. Afterwards, none is reserved in `wait` if the source refused at once; the
  // machine is then short. kStoreFull if the budget has no room.
  [[nodiscard]] Status start(std::uint64_t bytes, LeaseWait& wait);
  // Reserves a segment that is being made for a request that is gone, if there is one between these sizes. Returns
  // whether there is.
  [[nodiscard]] bool join(std::uint64_t min_bytes, std::uint64_t max_bytes, LeaseWait& wait);
  [[nodiscard]] bool is_under_way(const LeaseWait& wait) const;
  [[nodiscard]] std::uint32_t take(LeaseWait& wait);  // the finished segment, or kNoSegment if none was reserved
  void abandon(LeaseWait& wait);                      // the request is gone; the segment becomes available to all

  // The source's answer, and later another one without an error if the kind of its pages has changed. Ignored if the
  // segment was dropped meanwhile.
  void provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind);

  // --- ahead of demand
  void top_up(bool large_too);  // makes warm memory; a large segment takes time and memory bandwidth
  void retry_memory();          // the machine may have more memory by now
  [[nodiscard]] bool warm_done() const { return warm_done_; }
  [[nodiscard]] const std::string& warm_note() const { return warm_note_; }  // why it stopped short

  // Whether the machine gave less than the capacity; warm_note() says why.
  [[nodiscard]] bool is_short() const { return memory_limit_ != UINT64_MAX; }
  [[nodiscard]] std::uint64_t limit_bytes() const { return std::min(sizes_->capacity_bytes(), memory_limit_); }
  // Why it refused memory last, which stays while that is tried again; empty if it has provided some since.
  [[nodiscard]] const std::string& latest_refusal() const { return refusal_; }
  [[nodiscard]] std::uint64_t available_bytes() const;  // not committed, obtainable, and not kept free
  // Until the next call, segments leave so much of the budget to the control memory of what is written into them.
  void keep_free(std::uint64_t bytes) { kept_free_ = bytes; }
  [[nodiscard]] MemoryKind latest_kind() const { return latest_kind_; }

 private:
  // Returns kNoSegment if the source refused at once.
  [[nodiscard]] Result<std::uint32_t> make(std::uint64_t bytes, bool urgent);
  void on_memory_refused(std::uint64_t bytes, const Status& why);

  // Guarded by the daemon's thread.
  LiveSegments* live_;
  MemorySource* source_;
  const MemoryBudget* budget_;
  const SegmentSizes* sizes_;
  bool warm_done_;
  bool warm_stopped_ = false;
  std::string warm_note_;
  std::uint64_t memory_limit_ = UINT64_MAX;  // limit of committed memory; lower while the machine is short of it
  std::uint64_t kept_free_ = 0;
  std::string refusal_;  // why the machine refused memory, since it last provided some; logged once
  MemoryKind latest_kind_ = MemoryKind::kUnknown;
};

}  // namespace entrepot
