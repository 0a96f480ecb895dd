// Live segments: every segment that exists, who may write to it, and what it costs.
//
// Keeps together what has to change together: the segment table in control memory (its states are in
// shm/segment_table.h), the ranges of each segment (theirs are in segment_ranges.h), and the budget, which grants a
// segment before it is made and is credited for retired ranges. Decides nothing: which segment serves what is up to the
// other classes of this folder.
//
// A segment has at most one writer. It goes to another writer only when it holds nothing and the former one is gone or
// has unmapped it; its former writer may get it back while it still holds that writer's data. Who may take a free
// segment depends on three more conditions:
//
//   added for a request ──reserve()──▶ only for that request ──unreserve(): it takes the segment──▶ as the state says
//                                               └──────────────offer(): the request is gone───────▶ for all
//   leased as isolated ──▶ for nobody but that writer, who may lease it again when it is empty ──the writer is gone──▶
//                          dropped once it is empty
//   adopted ──withhold()──▶ for nobody ──release_withheld()──▶ as the state says
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/memory_budget.h"
#include "shm/segment_table.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_ranges.h"

namespace entrepot {

inline constexpr std::uint32_t kNoSegment = 0xffff'ffffU;

// Guarded by the daemon's thread; changed by LiveSegments only.
struct LiveSegment {
  LiveSegment(std::uint64_t bytes, RangeTotals& totals) : ranges(bytes, totals) {}

  SegmentRanges ranges;
  bool urgent = false;           // made for a request, though perhaps for one that is gone
  bool descriptor_sent = false;  // its writer has the writable descriptor
  bool reserved = false;         // made for a request that still waits
  bool withheld = false;         // since an adoption: a reader may use memory that nothing accounts for
  bool orphaned = false;         // its writer is gone: what is free in it serves no lease before all of it is free
};

// Guarded by the daemon's thread.
class LiveSegments {
 public:
  using Map = std::map<std::uint32_t, LiveSegment>;

  LiveSegments(ControlMemory& memory, MemorySource& source, MemoryBudget& budget);
  LiveSegments(const LiveSegments&) = delete;  // the segments refer to its totals
  LiveSegments& operator=(const LiveSegments&) = delete;

  [[nodiscard]] const Map& all() const { return segments_; }
  [[nodiscard]] const SegmentTable& table() const { return table_; }
  [[nodiscard]] const LiveSegment* find(std::uint32_t segment) const;  // any number; null: there is none
  [[nodiscard]] const LiveSegment& at(std::uint32_t segment) const { return segments_.at(segment); }
  [[nodiscard]] SegmentRanges& ranges(std::uint32_t segment) { return segments_.at(segment).ranges; }
  [[nodiscard]] SegmentState state(std::uint32_t segment) const { return table_.state(segment); }
  [[nodiscard]] bool contains(std::uint32_t segment) const { return segments_.contains(segment); }
  [[nodiscard]] bool is_mappable(std::uint32_t segment) const;  // any number; whether it is more than being made

  // Whether nobody uses it.
  [[nodiscard]] bool is_spare(std::uint32_t segment, const LiveSegment& entry) const;
  // Whether anybody may take it as a whole.
  [[nodiscard]] bool is_free(std::uint32_t segment, const LiveSegment& entry) const;
  // Whether this client may: it is free, or was its own isolated one and is empty.
  [[nodiscard]] bool is_free_for(const SegmentWriterRef& client, std::uint32_t segment, const LiveSegment& entry) const;
  // Whether nothing is lost with it, though its writer may have to ask for another one.
  [[nodiscard]] bool is_droppable(std::uint32_t segment, const LiveSegment& entry) const;
  [[nodiscard]] bool is_writer(std::uint32_t segment, std::uint32_t client) const;  // only a live segment has one
  // Whether the client may let others map it writable, even after it has returned the segment: it is isolated, and this
  // client was its last writer, or that one is gone.
  [[nodiscard]] bool may_pass_on(std::uint32_t segment, std::uint32_t client) const;
  // Whether the client may write there without access to anyone else's data: it is the writer, or was the last one
  // before unmapping it, and asks for memory of the same isolation.
  [[nodiscard]] bool may_write_again(std::uint32_t segment, const SegmentWriterRef& client) const;

  // --- from the first byte to the last
  // Returns the number of a segment of which no memory exists yet. kStoreFull. `urgent`: a request waits for it.
  [[nodiscard]] Result<std::uint32_t> add(std::uint64_t bytes, bool urgent);
  void set_ready(std::uint32_t segment, MemoryKind kind);  // its memory exists
  void set_kind(std::uint32_t segment, MemoryKind kind) { table_.set_kind(segment, kind); }
  void drop(std::uint32_t segment);
  [[nodiscard]] Status retire(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  void reserve(std::uint32_t segment) { segments_.at(segment).reserved = true; }
  void unreserve(std::uint32_t segment) { segments_.at(segment).reserved = false; }
  void offer(std::uint32_t segment);

  // --- writers
  void lease(std::uint32_t segment, const SegmentWriterRef& client);  // a free one, or again to its last writer
  void end_lease(std::uint32_t segment);                              // nobody writes there: returned, or free if empty
  void resume_lease(std::uint32_t segment);                           // its writer reconnected
  void quarantine(std::uint32_t segment) { table_.set_state(segment, SegmentState::kQuarantined); }
  void orphan(std::uint32_t segment);                // its writer is gone
  void take_for_loads(std::uint32_t segment);        // nobody may lease it before it is empty again
  bool mark_descriptor_sent(std::uint32_t segment);  // returns whether it was sent before
  void unlease_all(std::uint32_t segment);
  // Writes the bounds of its leases to the table, for the next daemon: before a lease is answered, and after the object
  // it was taken for is fully written.
  void record_leases(std::uint32_t segment);
  // After something left it: makes it free, drops it (if it is isolated without a writer, or has holes), or leaves it.
  void release_if_empty(std::uint32_t segment);

  // --- adoption
  [[nodiscard]] SegmentAdoption adopt_table() { return table_.adopt(); }
  void adopt(std::uint32_t segment);                               // an entry whose memory exists
  void discard(std::uint32_t segment) { table_.remove(segment); }  // an entry that was not adopted
  void withhold(std::uint32_t segment) { segments_.at(segment).withheld = true; }
  [[nodiscard]] std::vector<std::uint32_t> release_withheld();  // returns those that were withheld

  // --- figures
  [[nodiscard]] std::uint64_t committed_bytes() const { return committed_; }
  [[nodiscard]] std::uint64_t leased_bytes() const { return totals_.leased_bytes; }
  [[nodiscard]] std::uint64_t blob_bytes() const { return totals_.blob_bytes; }
  [[nodiscard]] bool provisions_for_requests() const { return provisioned_urgently_ != 0; }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }  // how many were taken or made for a request so far
  [[nodiscard]] std::uint64_t freed() const { return freed_; }  // how many became free so far
  [[nodiscard]] std::uint64_t orphaned() const { return orphaned_; }  // how many have lost their writer so far

 private:
  // Now or before it unmapped it, and for leases of the same isolation.
  [[nodiscard]] bool is_last_writer(const SegmentWriterRef& client, std::uint32_t segment) const;
  void uncommit(std::uint64_t bytes);
  [[nodiscard]] bool is_provisioned_urgently(std::uint32_t segment) const;

  // Guarded by the daemon's thread.
  MemorySource* source_;
  MemoryBudget* budget_;
  SegmentTable table_;
  RangeTotals totals_;  // of segments_, which refers to it
  Map segments_;
  std::uint64_t committed_ = 0;
  std::uint32_t provisioned_urgently_ = 0;  // segments that are being provisioned because of a request
  std::uint64_t taken_ = 0;
  std::uint64_t freed_ = 0;
  std::uint64_t orphaned_ = 0;
};

}  // namespace entrepot
