// Segment pool: memory for payload, as the rest of the store sees it. It holds the classes of this folder and passes
// each call on to one of them. Each of them uses only those above it:
//
//   LiveSegments          every segment with its SegmentRanges, who may write to it, and what it costs
//   SegmentSizes          how large segments are, how many are kept warm, and which are surplus
//   SegmentProvisioning   makes segments, for requests and ahead of demand
//   SegmentReclaimer      gives memory back to the machine
//   SegmentLeases         gives clients ranges to write to, and takes them back
//   LoadAllocator         finds ranges for reloading spilled blobs
//   SegmentAdopter        takes over the segments of a daemon that died
//   SegmentFigures        what the segments hold, and what could be had
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "shm/blobs.h"
#include "shm/memory_budget.h"
#include "shm/record_arena.h"
#include "shm/segment_table.h"
#include "store/memory/live_segments.h"
#include "store/memory/load_allocator.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_adopter.h"
#include "store/memory/segment_figures.h"
#include "store/memory/segment_leases.h"
#include "store/memory/segment_provisioning.h"
#include "store/memory/segment_ranges.h"
#include "store/memory/segment_reclaimer.h"
#include "store/memory/segment_sizes.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SegmentPool {
 public:
  SegmentPool(ControlMemory& memory, RecordArena& records, MemorySource& source, MemoryBudget& budget,
              const StoreOptions& options);
  SegmentPool(const SegmentPool&) = delete;  // its parts refer to each other
  SegmentPool& operator=(const SegmentPool&) = delete;

  // --- leases
  // Returns a range, or none: wait (a segment may be in preparation for `wait`). kStoreFull if waiting cannot help.
  [[nodiscard]] Result<std::optional<LeaseGrant>> lease(const SegmentWriterRef& client, std::uint64_t min_bytes,
                                                        std::uint64_t want_bytes, LeaseWait& wait) {
    return leases_.lease(client, min_bytes, want_bytes, wait);
  }
  [[nodiscard]] std::optional<LeaseGrant> lease_fragment(const SegmentWriterRef& client, std::uint64_t min_bytes) {
    return leases_.lease_fragment(client, min_bytes);
  }
  // The request is gone; the segment being made for it becomes available to all.
  void abandon(LeaseWait& wait) { provisioning_.abandon(wait); }
  // kInvalidArgument unless the whole range is leased to the client. `done`: the client has unmapped the segment.
  [[nodiscard]] Status unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                               bool done) {
    return leases_.unlease(client, segment, offset, length, done);
  }
  // Its leased ranges are returned; it may still map its segments.
  void client_disconnected(std::uint32_t client) { leases_.client_disconnected(client); }
  // Its segments become available once they are empty.
  void client_died(std::uint32_t client) { leases_.client_died(client); }
  // After a reconnect: makes exactly these ranges leased to the client. Leaves out those that cannot be.
  void restore_leases(const SegmentWriterRef& client, const std::vector<ReportedLease>* leases) {
    leases_.restore(client, leases);
  }

  // --- loads: memory filled by the daemon itself, in segments that no client may write
  //
  // Returns a blob's range, or none: wait (a segment may be in preparation for `wait`, or nothing is free).
  [[nodiscard]] Result<std::optional<BlobLocation>> allocate_for_load(std::uint64_t bytes, LeaseWait& wait) {
    return loads_.allocate(bytes, wait);
  }

  // --- blobs
  [[nodiscard]] Status check_leased(std::uint32_t client, std::uint32_t segment, std::uint64_t offset,
                                    std::uint64_t length) const {
    return leases_.check_leased(client, segment, offset, length);
  }
  void take_for_blob(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);  // after check_leased()
  void sealed(std::uint32_t segment);  // any number; call once an object with a blob in it is fully written
  void free_blob_range(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] std::uint32_t generation(std::uint32_t segment) const { return live_.table().generation(segment); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t segment) const { return live_.table().bytes(segment); }
  [[nodiscard]] MemoryKind kind(std::uint32_t segment) const { return live_.table().kind(segment); }
  // Any number; whether there is memory to map.
  [[nodiscard]] bool is_live(std::uint32_t segment) const { return live_.is_mappable(segment); }
  [[nodiscard]] bool contains(std::uint32_t segment) const { return live_.contains(segment); }  // or being made

  // --- memory
  void provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind) {
    provisioning_.provisioned(segment, generation, status, kind);
  }
  // Makes so many bytes available in the budget: drops segments, punches holes.
  [[nodiscard]] bool reclaim(std::uint64_t bytes) { return reclaimer_.reclaim(bytes); }
  // Until the next call, new segments leave so much of the budget free.
  void keep_free(std::uint64_t bytes) { provisioning_.keep_free(bytes); }
  // Makes warm memory ahead of demand; a large segment takes time and memory bandwidth.
  void top_up(bool large_too) { provisioning_.top_up(large_too); }
  [[nodiscard]] bool warm_done() const { return provisioning_.warm_done(); }
  [[nodiscard]] const std::string& warm_note() const { return provisioning_.warm_note(); }  // why it stopped short
  void retry_memory() { provisioning_.retry_memory(); }  // the machine may have more memory by now
  // Gives back free segments that top_up() would not provision again, but keeps `recent_bytes` of them: at least one if
  // there are any, otherwise at most `max_bytes`.
  using Surplus = SegmentReclaimer::Surplus;
  Surplus release_surplus(std::uint64_t max_bytes, std::uint64_t recent_bytes) {
    return reclaimer_.release_surplus(max_bytes, recent_bytes);
  }
  // Gives back what writers that are gone have left free between their values; returns whether there is more.
  [[nodiscard]] bool release_holes(std::uint64_t max_bytes) { return reclaimer_.release_holes(max_bytes); }
  [[nodiscard]] bool machine_is_short() const { return source_->machine_is_short(); }
  void follow_pressure(bool on) { source_->follow_pressure(on); }
  // How many segments were taken or made for a request so far, how many became free, and how many lost their writer.
  [[nodiscard]] std::uint64_t segments_taken() const { return live_.taken(); }
  [[nodiscard]] std::uint64_t segments_freed() const { return live_.freed(); }
  [[nodiscard]] std::uint64_t segments_orphaned() const { return live_.orphaned(); }
  // Whether the machine gave less than the capacity; warm_note() says why.
  [[nodiscard]] bool is_short() const { return provisioning_.is_short(); }
  [[nodiscard]] std::uint64_t limit_bytes() const { return provisioning_.limit_bytes(); }

  // --- adoption: begin, then every blob, then end.
  [[nodiscard]] std::uint32_t adopt_begin() { return adopter_.begin(); }  // returns the number of damaged entries
  [[nodiscard]] Status adopt_blob(const BlobLocation& place) { return adopter_.adopt_blob(place); }
  // `withhold`: memory that nothing accounts for may be in use by a reader. No range of the existing segments is handed
  // out, and no page of them given back, until release_withheld().
  void adopt_end(bool withhold) { adopter_.end(withhold); }
  void release_withheld() { adopter_.release_withheld(); }

  // --- figures
  [[nodiscard]] std::uint64_t committed_bytes() const { return live_.committed_bytes(); }
  // Of segments that hold something, that somebody may write to, or that a request waits for.
  [[nodiscard]] std::uint64_t in_use_bytes() const { return figures_.in_use_bytes(); }
  [[nodiscard]] std::uint64_t record_bytes() const { return figures_.record_bytes(); }
  [[nodiscard]] std::uint64_t fixed_bytes() const { return figures_.fixed_bytes(); }  // of the budget: all but segments
  // Not committed, and obtainable.
  [[nodiscard]] std::uint64_t available_bytes() const { return provisioning_.available_bytes(); }
  [[nodiscard]] std::uint64_t blob_bytes() const { return live_.blob_bytes(); }
  [[nodiscard]] std::uint64_t leased_bytes() const { return live_.leased_bytes(); }
  [[nodiscard]] std::uint64_t leased_by(std::uint32_t client) const { return figures_.leased_by(client); }
  [[nodiscard]] std::map<std::uint32_t, std::uint64_t> leased_by_client() const { return figures_.leased_by_client(); }
  [[nodiscard]] std::uint64_t warm_bytes() const { return figures_.warm_bytes(); }
  [[nodiscard]] std::uint64_t provisioning_bytes() const { return figures_.provisioning_bytes(); }
  [[nodiscard]] bool provisions_for_requests() const { return live_.provisions_for_requests(); }
  [[nodiscard]] std::uint64_t largest_free() const { return figures_.largest_free(); }
  [[nodiscard]] std::uint64_t largest_extent() const { return figures_.largest_extent(); }
  [[nodiscard]] std::uint64_t largest_lease() const { return figures_.largest_lease(); }
  [[nodiscard]] std::uint64_t small_segment_bytes() const { return sizes_.small_bytes(); }
  [[nodiscard]] std::uint64_t warm_target_bytes() const { return sizes_.warm_target_bytes(); }
  [[nodiscard]] const char* memory_kind() const { return figures_.memory_kind(); }  // of the latest segment
  using Summary = SegmentFigures::Summary;
  [[nodiscard]] std::map<std::string, Summary> summary() const { return figures_.summary(); }
  [[nodiscard]] std::string describe_pressure() const { return figures_.describe_pressure(); }

  [[nodiscard]] bool is_writer(std::uint32_t segment, std::uint32_t client) const {  // only a live segment has one
    return live_.is_writer(segment, client);
  }
  [[nodiscard]] bool may_pass_on(std::uint32_t segment, std::uint32_t client) const {  // of a live segment
    return live_.may_pass_on(segment, client);
  }

 private:
  // Guarded by the daemon's thread. Each refers to some of those before it.
  LiveSegments live_;
  MemorySource* source_;
  SegmentSizes sizes_;
  SegmentProvisioning provisioning_;
  SegmentReclaimer reclaimer_;
  SegmentLeases leases_;
  LoadAllocator loads_;
  SegmentAdopter adopter_;
  SegmentFigures figures_;
};

}  // namespace entrepot
