#include "shm/record_arena.h"

#include <algorithm>
#include <vector>

#include "base/align.h"
#include "base/text.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

Status outside(std::uint64_t offset, std::uint32_t bytes, std::uint64_t mark) {
  return Status(Code::kCorruptData, concat("a record of ", bytes, " bytes at ", offset,
                                           " is outside the record arena, which has ", mark, " bytes"));
}

bool within(std::uint64_t offset, std::uint32_t bytes, std::uint64_t mark) {
  return offset % kRecordAlign == 0 && bytes != 0 && offset <= mark && round_up(bytes, kRecordAlign) <= mark - offset;
}

}  // namespace

RecordArena::RecordArena(ControlMemory& memory) : region_(&memory.region(RegionKind::kRecords)), root_(&memory.root()) {
  extents_.grow(root_->record_high_water.load(std::memory_order_relaxed));
  holes_.grow(extents_.bytes());
}

Result<std::uint64_t> RecordArena::allocate(std::uint32_t bytes) {
  if (bytes == 0) return Status(Code::kInternal, "a record cannot have 0 bytes");
  const std::uint64_t rounded_bytes = round_up(bytes, kRecordAlign);
  std::optional<std::uint64_t> offset = extents_.allocate(rounded_bytes, kRecordAlign);
  if (!offset) {
    const std::uint64_t mark = extents_.bytes();
    const std::uint64_t step = std::max(rounded_bytes, kGrowBytes);
    if (rounded_bytes > region_->capacity() - mark) {
      return Status(Code::kStoreFull, concat("the record arena of ", format_bytes(region_->capacity()),
                                             " is full; delete unneeded objects"));
    }
    const std::uint64_t max_bytes = region_->capacity() / kRecordAlign * kRecordAlign;
    std::uint64_t target = std::min(mark + step, max_bytes);
    if (!region_->ensure(target).is_ok()) {
      const std::uint64_t page = os::page_bytes();
      target = std::min((mark + rounded_bytes + page - 1) / page * page, max_bytes);
      RETURN_IF_ERROR(region_->ensure(target));
    }
    root_->record_high_water.store(target, std::memory_order_release);
    extents_.grow(target);
    holes_.grow(target);
    offset = extents_.allocate(rounded_bytes, kRecordAlign);
    if (!offset)
      return Status(Code::kInternal, concat("no room for a record of ", rounded_bytes, " bytes after growing"));
  }
  // Reserve pages that trim() returned, before anything is written.
  if (holes_.used_bytes() > 0 && !holes_.is_free(*offset, rounded_bytes)) {
    const std::uint64_t page = os::page_bytes();
    const std::uint64_t first = *offset / page * page;
    const std::uint64_t end = std::min(round_up(*offset + rounded_bytes, page), holes_.bytes());
    const Status ensured = region_->ensure_range(*offset, rounded_bytes);
    if (!ensured.is_ok()) {
      RETURN_IF_ERROR(extents_.free(*offset, rounded_bytes));
      return ensured;
    }
    for (std::uint64_t at = first; at < end; at += page) {
      const std::uint64_t length = std::min(page, end - at);
      if (!holes_.is_free(at, length)) RETURN_IF_ERROR(holes_.free(at, length));
    }
  }
  return *offset;
}

Status RecordArena::free(std::uint64_t offset, std::uint32_t bytes) {
  return extents_.free(offset, round_up(bytes, kRecordAlign));
}

Status RecordArena::reserve(std::uint64_t offset, std::uint32_t bytes) {
  if (!within(offset, bytes, extents_.bytes())) return outside(offset, bytes, extents_.bytes());
  return extents_.reserve(offset, round_up(bytes, kRecordAlign));
}

Result<std::uint64_t> RecordArena::write(const RecordParts& parts, std::uint32_t& bytes) {
  ASSIGN_OR_RETURN(bytes, record_bytes(parts));
  ASSIGN_OR_RETURN(const std::uint64_t offset, allocate(bytes));
  const Status built = build_record(parts, span(offset, bytes));
  if (!built.is_ok()) {
    RETURN_IF_ERROR(free(offset, bytes));
    return built;
  }
  return offset;
}

Result<RecordView> RecordArena::view(std::uint64_t offset, std::uint32_t bytes) const {
  if (!within(offset, bytes, extents_.bytes())) return outside(offset, bytes, extents_.bytes());
  return RecordView::parse({region_->entries() + offset, bytes});
}

std::span<std::byte> RecordArena::span(std::uint64_t offset, std::uint32_t bytes) {
  return {region_->entries() + offset, bytes};
}

void RecordArena::withhold() {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  extents_.for_each_free([&](std::uint64_t offset, std::uint64_t length) { ranges.emplace_back(offset, length); });
  for (const auto& range : ranges) {
    if (extents_.reserve(range.first, range.second).is_ok()) withheld_.push_back(range);
  }
}

void RecordArena::release_withheld() {
  for (const auto& [offset, length] : std::exchange(withheld_, {})) {
    const Status freed = extents_.free(offset, length);
    if (!freed.is_ok()) log_error("record arena: ", freed.to_string());
  }
}

Result<std::uint64_t> RecordArena::trim() {
  const std::uint64_t page = os::page_bytes();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  extents_.for_each_free([&](std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t first = round_up(offset, page);
    const std::uint64_t end = (offset + length) / page * page;
    if (end > first && end - first >= kTrimBytes) ranges.emplace_back(first, end - first);
  });
  std::uint64_t punched = 0;
  for (const auto& [offset, length] : ranges) {
    std::uint64_t unpunched_from = offset;
    while (unpunched_from < offset + length && !holes_.is_free(unpunched_from, page))
      unpunched_from += page;
    if (unpunched_from == offset + length) continue;  // already returned
    RETURN_IF_ERROR(region_->discard_range(offset, length));
    for (std::uint64_t at = offset; at < offset + length; at += page) {
      if (!holes_.is_free(at, page)) continue;
      RETURN_IF_ERROR(holes_.reserve(at, page));
      punched += page;
    }
  }
  return punched;
}

Result<RecordView> read_record(const ControlView& view, const Slot& slot) {
  const std::uint64_t mark = view.root().record_high_water.load(std::memory_order_acquire);
  const Region& region = view.region(RegionKind::kRecords);
  if (mark > region.capacity() || !within(slot.record_offset, slot.record_bytes, mark)) {
    return outside(slot.record_offset, slot.record_bytes, mark);
  }
  return RecordView::parse({region.entries() + slot.record_offset, slot.record_bytes});
}

}  // namespace entrepot
