#include "shm/segment_table.h"

#include <algorithm>

#include "base/crc32c.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint32_t kLeaseBits = 24;
constexpr std::uint64_t kLeaseMask = (1ULL << kLeaseBits) - 1;

std::uint64_t with_check(std::uint64_t leases, std::uint32_t generation) {
  return leases | (static_cast<std::uint64_t>(Crc32c().add(leases).add(generation).value()) << 2 * kLeaseBits);
}

}  // namespace

std::uint32_t segment_crc(const Segment& segment, std::uint32_t generation) {
  return Crc32c().add(segment.bytes).add(generation).value();
}

SegmentTable::SegmentTable(ControlMemory& memory)
    : table_(memory.region(RegionKind::kSegments), memory.root().segment_high_water) {}

SegmentAdoption SegmentTable::adopt() {
  SegmentAdoption adoption;
  table_.adopt([&](std::uint32_t index, const Segment& segment) {
    const std::uint32_t generation = Word::generation(segment.word.load(std::memory_order_acquire));
    const bool has_valid_state = state(index) <= SegmentState::kQuarantined;
    const bool is_intact = has_valid_state && segment.crc == segment_crc(segment, generation);
    (is_intact ? adoption.live : adoption.damaged).push_back(index);
    return true;
  });
  return adoption;
}

Result<std::uint32_t> SegmentTable::add(std::uint64_t bytes) {
  if (bytes == 0 || bytes % os::page_bytes() != 0) {
    return Status(Code::kInvalidArgument,
                  concat("invalid segment size of ", bytes, " bytes: it must be a multiple of ", os::page_bytes()));
  }
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  Segment& segment = table_.at(index);
  segment.bytes = bytes;
  segment.writer_token = 0;
  segment.writer = 0;
  segment.leases.store(0, std::memory_order_relaxed);
  segment.crc = segment_crc(segment, table_.next_generation(index));
  table_.publish(index, static_cast<std::uint8_t>(SegmentState::kProvisioning),
                 static_cast<std::uint8_t>(MemoryKind::kCold));
  return index;
}

void SegmentTable::set_word(std::uint32_t segment, SegmentState state, MemoryKind kind, std::uint16_t flags) {
  table_.at(segment).word.store(
      Word::make(generation(segment), static_cast<std::uint8_t>(state), static_cast<std::uint8_t>(kind), flags),
      std::memory_order_release);
}

void SegmentTable::set_state(std::uint32_t segment, SegmentState state) {
  set_word(segment, state, kind(segment), Word::flags(table_.word(segment)));
}

void SegmentTable::set_kind(std::uint32_t segment, MemoryKind kind) {
  set_word(segment, state(segment), kind, Word::flags(table_.word(segment)));
}

void SegmentTable::lease(std::uint32_t segment, const SegmentWriterRef& writer) {
  table_.at(segment).writer = writer.client;
  table_.at(segment).writer_token = writer.token;
  set_word(segment, SegmentState::kLeased, kind(segment), writer.isolated ? kIsolatedFlag : 0);
}

void SegmentTable::end_lease(std::uint32_t segment, bool holds_data) {
  set_state(segment, holds_data ? SegmentState::kReturned : SegmentState::kFree);
}

void SegmentTable::set_leases(std::uint32_t segment, Leases leases) {
  std::uint64_t word = 0;
  if (leases.first < leases.end) {
    const std::uint64_t end = std::min((leases.end + kLeaseUnit - 1) / kLeaseUnit, kLeaseMask);
    word = with_check((end << kLeaseBits) | std::min(leases.first / kLeaseUnit, end), generation(segment));
  }
  std::atomic<std::uint64_t>& stored = table_.at(segment).leases;
  if (stored.load(std::memory_order_relaxed) != word) stored.store(word, std::memory_order_release);
}

SegmentTable::Leases SegmentTable::leases(std::uint32_t segment) const {
  const std::uint64_t word = table_.at(segment).leases.load(std::memory_order_acquire);
  if (word == 0) return {};
  const std::uint64_t first = word & kLeaseMask;
  const std::uint64_t end = (word >> kLeaseBits) & kLeaseMask;
  const bool is_intact = word == with_check(word & ((1ULL << 2 * kLeaseBits) - 1), generation(segment));
  if (!is_intact || end == kLeaseMask) return {0, bytes(segment)};
  return {first * kLeaseUnit, std::min(end * kLeaseUnit, bytes(segment))};
}

void SegmentTable::forget_writer(std::uint32_t segment) {
  table_.at(segment).writer_token = 0;
  table_.at(segment).writer = 0;
}

void SegmentTable::remove(std::uint32_t segment) { table_.free(segment); }

SegmentState SegmentTable::state(std::uint32_t segment) const {
  return static_cast<SegmentState>(Word::state(table_.word(segment)));
}

MemoryKind SegmentTable::kind(std::uint32_t segment) const {
  return static_cast<MemoryKind>(Word::kind(table_.word(segment)));
}

SegmentWriterRef SegmentTable::writer(std::uint32_t segment) const {
  return {table_.at(segment).writer, table_.at(segment).writer_token, is_isolated(segment)};
}

bool SegmentTable::is_isolated(std::uint32_t segment) const {
  return (Word::flags(table_.word(segment)) & kIsolatedFlag) != 0;
}

bool SegmentTable::is_live(std::uint32_t segment) const {
  return segment < table_.size() && state(segment) != SegmentState::kAbsent;
}

}  // namespace entrepot
