// Segment table: one entry per payload memfd. Clients do not map it.
//
//   absent ──add──▶ provisioning ──provisioned──▶ free ──lease──▶ leased ──end_lease, holds nothing──▶ free
//                                                                   └─────end_lease, holds data──▶ returned
//
//   returned ──last blob gone──▶ free            free ──blob loaded──▶ returned
//   returned ──leased again by its last writer──▶ leased
//   free ──remove──▶ absent (generation + 1)
//
// A segment that was leased as isolated stays so for as long as it exists: processes that its writer lets map it may
// write to all of it, so it is never leased to another client, nor filled by the daemon. Once it is empty and without a
// writer, it is removed, and never free.
//
//   daemon restart: leased ──▶ quarantined ──writer reconnects──▶ leased
//                                          └─writer died──▶ free or returned
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "shm/layout.h"

namespace entrepot {

struct SegmentWriterRef {
  std::uint32_t client = 0;
  std::uint64_t token = 0;  // 0: nobody
  bool isolated = false;    // its segments are isolated
};

// A client may write to it, or could before the daemon restarted and may reconnect.
[[nodiscard]] constexpr bool has_writer(SegmentState state) {
  return state == SegmentState::kLeased || state == SegmentState::kQuarantined;
}

[[nodiscard]] std::uint32_t segment_crc(const Segment& segment, std::uint32_t generation);

struct SegmentAdoption {
  std::vector<std::uint32_t> live;     // any state but absent; checksum matches
  std::vector<std::uint32_t> damaged;  // wrong checksum or state; unchanged, for the caller to handle
};

// Guarded by the daemon's thread.
class SegmentTable {
 public:
  explicit SegmentTable(ControlMemory& memory);

  [[nodiscard]] SegmentAdoption adopt();  // call once, before anything else

  // Adds an entry in state kProvisioning and returns its number. `bytes` must be a multiple of the page size.
  [[nodiscard]] Result<std::uint32_t> add(std::uint64_t bytes);
  void set_state(std::uint32_t segment, SegmentState state);  // not kAbsent
  void set_kind(std::uint32_t segment, MemoryKind kind);
  // Stores the writer before the state kLeased, so that an adopting daemon knows who holds the lease.
  void lease(std::uint32_t segment, const SegmentWriterRef& writer);
  // Ends the lease: kFree or kReturned. The entry keeps its writer, as the former one.
  void end_lease(std::uint32_t segment, bool holds_data);
  // Bounds of all ranges leased to the writer, in bytes. They survive the daemon.
  struct Leases {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  void set_leases(std::uint32_t segment, Leases leases);
  [[nodiscard]] Leases leases(std::uint32_t segment) const;  // the whole segment if the bounds are damaged
  void forget_writer(std::uint32_t segment);                 // it died or unmapped it: anybody may lease it next
  void remove(std::uint32_t segment);                        // to absent, generation + 1 (or retired)

  [[nodiscard]] SegmentState state(std::uint32_t segment) const;
  [[nodiscard]] MemoryKind kind(std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t bytes(std::uint32_t segment) const { return table_.at(segment).bytes; }
  [[nodiscard]] std::uint32_t generation(std::uint32_t segment) const { return Word::generation(table_.word(segment)); }
  [[nodiscard]] SegmentWriterRef writer(std::uint32_t segment) const;
  [[nodiscard]] bool is_isolated(std::uint32_t segment) const;
  [[nodiscard]] bool is_live(std::uint32_t segment) const;  // accepts any number
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }

  EntryTable<Segment>& table() { return table_; }

 private:
  void set_word(std::uint32_t segment, SegmentState state, MemoryKind kind, std::uint16_t flags);

  EntryTable<Segment> table_;
};

}  // namespace entrepot
