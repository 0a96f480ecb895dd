// Segment pool: memory for payload. Tracks who may write which range, what is warm, and what can be given back.
//
// A range of a segment is free, leased (only its writer may write it), sealed (part of a blob), or retired (its pages
// were returned to the machine under pressure; usable again only in a new segment). A segment has at most one writer.
// It goes to another writer only when it holds nothing and the former one is gone or has unmapped it; its former writer
// may get it back while it still holds that writer's data. States are in shm/segment_table.h. The table entry is
// written before a lease is answered. The budget grants each segment before it is made, and is credited for retired
// ranges.
//
// What the machine can provide:
//
//   the full capacity ──a segment could not be made──▶ short: what is committed, plus half of what was refused
//           ▲                                            │  ▲ (so the next attempt is smaller, and finally none)
//           └────────retry_memory(), seconds later───────┘  └──the next one could not be made either
//
// While it is short, values are placed as in a store of that size: in free memory, or by evicting others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/status.h"
#include "shm/blobs.h"
#include "shm/extent_allocator.h"
#include "shm/memory_budget.h"
#include "shm/record_arena.h"
#include "shm/segment_table.h"
#include "store/memory/memory_source.h"
#include "store/types.h"

namespace entrepot {

inline constexpr std::uint64_t kLeaseGranule = 64U << 10;  // leases start and end on multiples of it
inline constexpr std::uint32_t kNoSegment = 0xffff'ffffU;

// Extent that a blob occupies: whole pages for large blobs, so that no page holds bytes of two owners.
[[nodiscard]] std::uint64_t blob_extent_bytes(std::uint64_t offset, std::uint64_t length);

// State of a lease that could not be answered at once: the segment being made for it.
struct LeaseWait {
  std::uint32_t segment = kNoSegment;
};

// Guarded by the daemon's thread.
class SegmentPool {
 public:
  SegmentPool(ControlMemory& memory, RecordArena& records, MemorySource& source, MemoryBudget& budget,
              const StoreOptions& options);

  // --- leases
  // Returns a range, or none: wait (a segment may be in preparation for `wait`). kStoreFull if waiting cannot help.
  [[nodiscard]] Result<std::optional<LeaseGrant>> lease(const SegmentWriterRef& client, std::uint64_t min_bytes,
                                                        std::uint64_t want_bytes, LeaseWait& wait);
  void abandon(LeaseWait& wait);  // the request is gone; the segment being made for it becomes available to all
  // kInvalidArgument unless the whole range is leased to the client. `done`: the client has unmapped the segment.
  [[nodiscard]] Status unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                               bool done);
  void client_disconnected(std::uint32_t client);  // its leased ranges are returned; it may still map its segments
  void client_died(std::uint32_t client);          // its segments become available once they are empty
  // After a reconnect: makes exactly these ranges leased to the client. Leaves out those that cannot be.
  void restore_leases(const SegmentWriterRef& client, const std::vector<ReportedLease>* leases);

  // --- loads: memory filled by the daemon itself, in segments that no client may write
  //
  // Returns a blob's range, or none: wait (a segment may be in preparation for `wait`, or nothing is free).
  [[nodiscard]] Result<std::optional<BlobLocation>> allocate_for_load(std::uint64_t bytes, LeaseWait& wait);

  // --- blobs
  [[nodiscard]] Status check_leased(std::uint32_t client, std::uint32_t segment, std::uint64_t offset,
                                    std::uint64_t length) const;
  void take_for_blob(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);  // after check_leased()
  void sealed(std::uint32_t segment);  // any number; call once an object with a blob in it is fully written
  void free_blob_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] std::uint32_t generation(std::uint32_t segment) const { return table_.generation(segment); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t segment) const { return table_.bytes(segment); }
  [[nodiscard]] MemoryKind kind(std::uint32_t segment) const { return table_.kind(segment); }
  [[nodiscard]] bool is_live(std::uint32_t segment) const;  // any number; whether there is memory to map
  [[nodiscard]] bool contains(std::uint32_t segment) const { return infos_.contains(segment); }  // or being made

  // --- memory
  void provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind);
  [[nodiscard]] bool reclaim(std::uint64_t bytes);  // in the budget: drops segments, punches holes
  void top_up(bool large_too);  // makes warm memory ahead of demand; a large segment takes time and memory bandwidth
  [[nodiscard]] bool warm_done() const { return warm_done_; }
  [[nodiscard]] const std::string& warm_note() const { return warm_note_; }  // why it stopped short
  void retry_memory();                                                       // the machine may have more memory by now
  // Gives back free segments that top_up() would not provision again: at least one if there are any, otherwise at most
  // `max_bytes`. Returns whether there are more.
  [[nodiscard]] bool release_surplus(std::uint64_t max_bytes);
  // How many segments were taken or made for a request so far, and how many became free.
  [[nodiscard]] std::uint64_t segments_taken() const { return segments_taken_; }
  [[nodiscard]] std::uint64_t segments_freed() const { return segments_freed_; }
  // Whether the machine gave less than the capacity; warm_note() says why.
  [[nodiscard]] bool is_short() const { return memory_limit_ != UINT64_MAX; }
  [[nodiscard]] std::uint64_t limit_bytes() const { return std::min(options_.capacity_bytes, memory_limit_); }

  // --- adoption: begin, then every blob, then end.
  [[nodiscard]] std::uint32_t adopt_begin();  // returns the number of damaged entries
  [[nodiscard]] Status adopt_blob(const BlobLocation& place);
  // `withhold`: memory that nothing accounts for may be in use by a reader. No range of the existing segments is handed
  // out, and no page of them given back, until release_withheld().
  void adopt_end(bool withhold);
  void release_withheld();

  // --- figures
  [[nodiscard]] std::uint64_t committed_bytes() const { return committed_; }
  [[nodiscard]] std::uint64_t record_bytes() const;
  [[nodiscard]] std::uint64_t available_bytes() const;  // not committed, and obtainable
  [[nodiscard]] std::uint64_t blob_bytes() const { return blob_bytes_; }
  [[nodiscard]] std::uint64_t leased_bytes() const { return leased_; }
  [[nodiscard]] std::uint64_t leased_by(std::uint32_t client) const;
  [[nodiscard]] std::map<std::uint32_t, std::uint64_t> leased_by_client() const;  // leased bytes by writer
  [[nodiscard]] std::uint64_t warm_bytes() const;  // free segments, and free ranges in others
  [[nodiscard]] std::uint64_t provisioning_bytes() const;
  [[nodiscard]] std::uint64_t largest_free() const;
  [[nodiscard]] std::uint64_t largest_extent() const;  // contiguous free range, in any segment
  [[nodiscard]] std::uint64_t largest_lease() const;  // to a new client, at once; holes elsewhere are given back for it
  [[nodiscard]] std::uint64_t small_segment_bytes() const { return small_; }
  [[nodiscard]] std::uint64_t warm_target_bytes() const { return warm_target_; }
  [[nodiscard]] const char* memory_kind() const;  // of the latest segment
  struct Summary {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::map<std::string, Summary> summary() const;
  [[nodiscard]] std::string describe_pressure() const;

  [[nodiscard]] bool is_writer(std::uint32_t segment, std::uint32_t client) const;  // only a live segment has one

 private:
  // Derived state of a segment.
  struct SegmentInfo {
    ExtentAllocator extents;                        // free or in use
    std::map<std::uint64_t, std::uint64_t> leased;  // offset -> length, disjoint, not adjacent: store_lease_bounds()
    std::uint64_t leased_bytes = 0;
    std::uint64_t retired = 0;
    std::uint32_t blobs = 0;
    bool descriptor_sent = false;                                // its writer has the writable descriptor
    bool reserved = false;                                       // made for a request that still waits
    bool withheld = false;                                       // since an adoption: see adopt_end
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;  // found by an adoption, until they are retired
    [[nodiscard]] bool empty() const { return blobs == 0 && leased.empty(); }
  };

  [[nodiscard]] SegmentInfo& info(std::uint32_t segment) { return *infos_.at(segment); }
  [[nodiscard]] const SegmentInfo& info(std::uint32_t segment) const { return *infos_.at(segment); }
  [[nodiscard]] bool is_free(std::uint32_t segment) const;
  LeaseGrant grant(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] bool may_write_again(std::uint32_t segment, const SegmentWriterRef& client) const;
  LeaseGrant grant_in_own_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t offset,
                                  std::uint64_t length);
  std::optional<LeaseGrant> lease_from_own_segments(const SegmentWriterRef& client, std::uint64_t min_length,
                                                    std::uint64_t want);
  std::optional<LeaseGrant> lease_free_segment(const SegmentWriterRef& client, std::uint64_t min_length,
                                               std::uint64_t want, std::uint64_t largest);
  std::optional<BlobLocation> allocate_blob_in(std::uint32_t segment, std::uint64_t bytes);
  LeaseGrant lease_segment(const SegmentWriterRef& client, std::uint32_t segment, std::uint64_t want);
  // Returns kNoSegment if the source refused at once; the pool is then short.
  Result<std::uint32_t> start_segment(std::uint64_t bytes, bool urgent);
  void on_memory_refused(std::uint64_t bytes, const Status& why);
  void add_leased(SegmentInfo& info, std::uint64_t offset, std::uint64_t length);
  void remove_leased(SegmentInfo& info, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] bool is_leased(const SegmentInfo& info, std::uint64_t offset, std::uint64_t length) const;
  void release_all_leases(std::uint32_t segment);
  // Writes leases to the table, for the next daemon: before a lease is answered, and after the object it was taken for
  // is fully written.
  void store_lease_bounds(std::uint32_t segment);
  void free_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  void release_if_empty(std::uint32_t segment);  // after something left it: makes it free, drops it, or leaves it
  void drop(std::uint32_t segment);
  [[nodiscard]] std::vector<std::uint32_t> surplus() const;  // largest first
  [[nodiscard]] std::uint64_t min_large_bytes() const;  // minimum size of a segment that is kept for one large value
  [[nodiscard]] bool is_droppable(std::uint32_t segment, const SegmentInfo& entry) const;
  [[nodiscard]] std::uint64_t reclaimable_bytes() const;
  // Free ranges, in whole pages.
  [[nodiscard]] static std::vector<std::pair<std::uint64_t, std::uint64_t>> free_pages(const SegmentInfo& entry);
  void retire_holes(std::uint32_t segment);
  void quarantine(std::uint32_t segment);
  void retire_free_ranges(std::uint32_t segment, std::uint64_t enough);
  void release_adopted(std::uint32_t segment);  // of a segment without a writer

  StoreOptions options_;
  RecordArena* records_;
  MemoryBudget* budget_;
  MemorySource* source_;
  SegmentTable table_;
  std::map<std::uint32_t, std::unique_ptr<SegmentInfo>> infos_;  // live segments
  std::uint64_t committed_ = 0;
  std::uint64_t blob_bytes_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t small_ = 0;
  std::uint64_t large_ = 0;        // 0: none is kept
  std::uint32_t small_count_ = 0;  // kept warm
  std::uint64_t warm_target_ = 0;
  std::uint64_t segments_taken_ = 0;
  std::uint64_t segments_freed_ = 0;
  bool warm_done_ = false;
  bool warm_stopped_ = false;
  std::string warm_note_;
  std::uint64_t memory_limit_ = UINT64_MAX;  // limit of committed_; lower while the machine is short of memory
  bool refused_ = false;                     // since the last successful segment; logged once
  MemoryKind latest_kind_ = MemoryKind::kUnknown;
};

}  // namespace entrepot
