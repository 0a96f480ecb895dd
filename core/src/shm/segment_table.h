// The segment table: one entry a memfd of payload. Clients do not map it.
//
//   absent --add--> provisioning --set_state--> free --lease--> leased(writer) --end_lease--> free      (holds nothing)
//                                                  ^                 |          \--> returned  (no writer; holds data)
//                                                  |                 \--restart--> quarantined --> leased | free |
//                                                  returned
//                                                  \--- returned, once empty          free --remove--> absent
//                                                  (generation + 1)
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
};

// A client may write there, or could until the daemon died and may be back.
[[nodiscard]] constexpr bool has_writer(SegmentState state) {
  return state == SegmentState::kLeased || state == SegmentState::kQuarantined;
}

[[nodiscard]] std::uint32_t segment_crc(const Segment& segment, std::uint32_t generation);

struct SegmentAdoption {
  std::vector<std::uint32_t> live;     // any state but absent, checksum fits
  std::vector<std::uint32_t> damaged;  // checksum or state does not fit; left as they are, for the caller to judge
};

// Guarded by the daemon's thread.
class SegmentTable {
 public:
  explicit SegmentTable(ControlMemory& memory);

  [[nodiscard]] SegmentAdoption adopt();  // once, first

  // A new entry, state kProvisioning; its number. `bytes` a multiple of the page size.
  [[nodiscard]] Result<std::uint32_t> add(std::uint64_t bytes);
  void set_state(std::uint32_t segment, SegmentState state);  // not kAbsent
  void set_kind(std::uint32_t segment, MemoryKind kind);
  // Writer first, then state kLeased: whoever adopts a leased segment knows by whom.
  void lease(std::uint32_t segment, const SegmentWriterRef& writer);
  // The lease ends; kFree or kReturned. The writer stays written: it is the former one.
  void end_lease(std::uint32_t segment, bool holds_data);
  // All that its writer has leases of lies in here, after a death of the daemon too: bytes, first and end.
  struct Leases {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  void set_leases(std::uint32_t segment, Leases leases);
  [[nodiscard]] Leases leases(std::uint32_t segment) const;  // the whole segment, where they are damaged
  void forget_writer(std::uint32_t segment);                 // it died or unmapped: anybody may lease it next
  void remove(std::uint32_t segment);                        // absent, generation + 1 (or retired)

  [[nodiscard]] SegmentState state(std::uint32_t segment) const;
  [[nodiscard]] MemoryKind kind(std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t bytes(std::uint32_t segment) const { return table_.at(segment).bytes; }
  [[nodiscard]] std::uint32_t generation(std::uint32_t segment) const { return Word::generation(table_.word(segment)); }
  [[nodiscard]] SegmentWriterRef writer(std::uint32_t segment) const;
  [[nodiscard]] bool is_live(std::uint32_t segment) const;  // any number
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }
  [[nodiscard]] std::uint32_t live() const { return table_.live(); }

  EntryTable<Segment>& table() { return table_; }

 private:
  void set_word(std::uint32_t segment, SegmentState state, MemoryKind kind);

  EntryTable<Segment> table_;
};

}  // namespace entrepot
