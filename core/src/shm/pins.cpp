#include "shm/pins.h"

#include <algorithm>
#include <new>

#include "base/text.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

Status check_capacity(std::uint32_t capacity) {
  if (capacity >= 1 && capacity <= kMaxPinsPerClient) return Status::ok();
  return Status(Code::kInvalidArgument,
                concat("invalid pin table capacity of ", capacity, ": it must be 1 to ", kMaxPinsPerClient, " pins"));
}

void write_header(std::byte* memory, std::uint32_t capacity) {
  auto* header = new (memory) PinTableHeader{};
  header->magic = kPinTableMagic;
  header->layout_version = kLayoutVersion;
  header->capacity = capacity;
}

}  // namespace

std::uint64_t pin_memory_bytes(std::uint32_t reserved_pins, std::uint32_t capacity) {
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t wanted = std::max(kPinTableFirstBytes, pin_table_bytes(std::min(reserved_pins, capacity)));
  return std::min((wanted + page - 1) / page * page, pin_table_bytes(capacity));
}

Result<std::uint32_t> grow_pin_table(int fd, std::uint32_t capacity, std::uint32_t reserved_pins) {
  RETURN_IF_ERROR(check_capacity(capacity));
  const std::uint64_t bytes = pin_memory_bytes(reserved_pins, capacity);
  RETURN_IF_ERROR(os::reserve(fd, 0, bytes).with_context("no memory for a client's pin table"));
  return pins_fitting(bytes, capacity);
}

Result<UniqueFd> create_pin_table(std::uint32_t capacity, std::uint32_t reserved_pins) {
  RETURN_IF_ERROR(check_capacity(capacity));
  const std::uint64_t bytes = pin_table_bytes(capacity);
  ASSIGN_OR_RETURN(UniqueFd fd, os::create_memfd("entrepot-pins", bytes));
  RETURN_IF_ERROR(grow_pin_table(fd.get(), capacity, reserved_pins));
  ASSIGN_OR_RETURN(const os::Mapping mapping, os::Mapping::map(fd.get(), 0, bytes, os::Access::kReadWrite));
  write_header(mapping.data(), capacity);
  return fd;
}

Result<PinTable> PinTable::attach(UniqueFd fd) {
  RETURN_IF_ERROR(os::check_sealed(fd.get()).with_context("pin table"));
  ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(fd.get()));
  if (bytes < sizeof(PinTableHeader)) {
    return Status(Code::kInvalidArgument, concat("pin table: ", bytes, " bytes are too few for the header"));
  }
  ASSIGN_OR_RETURN(os::Mapping mapping, os::Mapping::map(fd.get(), 0, bytes, os::Access::kReadWrite));
  const auto* header = reinterpret_cast<const PinTableHeader*>(mapping.data());
  if (header->magic != kPinTableMagic) {
    return Status(Code::kCorruptData, "pin table: bad magic number; connect again");
  }
  if (header->layout_version != kLayoutVersion) {
    return Status(Code::kVersionMismatch, concat("the pin table has layout version ", header->layout_version,
                                                 ", but this build supports version ", kLayoutVersion,
                                                 "; use the same version of Entrepot as the daemon"));
  }
  const std::uint32_t capacity = header->capacity;
  RETURN_IF_ERROR(check_capacity(capacity));
  if (bytes < pin_table_bytes(capacity)) {
    return Status(Code::kInvalidArgument, concat("the pin table is truncated: it has ", bytes, " bytes, but its ",
                                                 capacity, " pins need ", pin_table_bytes(capacity)));
  }
  return from_memory(std::move(fd), std::move(mapping), capacity,
                     pins_fitting(pin_memory_bytes(0, capacity), capacity));
}

Result<PinTable> PinTable::create_private(std::uint32_t capacity) {
  RETURN_IF_ERROR(check_capacity(capacity));
  ASSIGN_OR_RETURN(os::Mapping mapping, os::Mapping::anonymous(pin_table_bytes(capacity)));
  write_header(mapping.data(), capacity);
  return from_memory(UniqueFd(), std::move(mapping), capacity, capacity);
}

Result<PinTable> PinTable::from_memory(UniqueFd fd, os::Mapping mapping, std::uint32_t capacity,
                                       std::uint32_t reserved_pins) {
  PinTable table;
  // Mapped, not allocated: pages are committed as positions are used.
  ASSIGN_OR_RETURN(table.next_mapping_, os::Mapping::anonymous(sizeof(std::atomic<std::uint32_t>) * capacity));
  table.fd_ = std::move(fd);
  table.mapping_ = std::move(mapping);
  table.ring_ = reinterpret_cast<std::atomic<std::uint64_t>*>(table.mapping_.data() + sizeof(PinTableHeader));
  table.pins_ = table.ring_ + kAccessRing;
  table.next_ = reinterpret_cast<std::atomic<std::uint32_t>*>(table.next_mapping_.data());
  table.capacity_ = capacity;
  table.state_ = std::make_unique<State>();
  table.state_->reserved_pins.store(reserved_pins, std::memory_order_relaxed);
  return table;
}

// Free positions are taken from a stack first (its tag changes with every operation, so a position that was returned in
// between is noticed), then from those never used.
std::uint32_t PinTable::take_position() {
  std::uint64_t top = state_->top.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(top) != 0) {
    const std::uint32_t position = static_cast<std::uint32_t>(top) - 1;
    const std::uint64_t below = next_[position].load(std::memory_order_relaxed);
    const std::uint64_t replaced = (((top >> 32) + 1) << 32) | below;
    if (state_->top.compare_exchange_weak(top, replaced, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return position;
    }
  }
  std::uint32_t fresh = state_->fresh.load(std::memory_order_relaxed);
  while (fresh < state_->reserved_pins.load(std::memory_order_acquire)) {
    if (state_->fresh.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed)) return fresh;
  }
  return kNoPosition;
}

void PinTable::grow_to(std::uint32_t reserved_pins) {
  reserved_pins = std::min(reserved_pins, capacity_);
  std::uint32_t current = state_->reserved_pins.load(std::memory_order_relaxed);
  while (current < reserved_pins &&
         !state_->reserved_pins.compare_exchange_weak(current, reserved_pins, std::memory_order_acq_rel)) {
  }
}

void PinTable::give_position(std::uint32_t position) {
  std::uint64_t top = state_->top.load(std::memory_order_relaxed);
  std::uint64_t replaced = 0;
  do {
    next_[position].store(static_cast<std::uint32_t>(top), std::memory_order_relaxed);
    replaced = (((top >> 32) + 1) << 32) | (position + 1U);
  } while (!state_->top.compare_exchange_weak(top, replaced, std::memory_order_acq_rel, std::memory_order_relaxed));
}

std::uint32_t PinTable::pin(std::uint32_t slot, std::uint32_t generation) {
  const std::uint32_t position = take_position();
  if (position == kNoPosition) return kNoPosition;
  // Raise the mark before the pin exists: a scan that does not see the mark precedes this in the total order of
  // sequentially consistent operations, so its exchange of the word precedes our second load of it.
  raise_high_water(position);
  pins_[position].exchange(PinWord::make(slot, generation), std::memory_order_seq_cst);
  return position;
}

std::uint32_t PinTable::reserve() {
  const std::uint32_t position = take_position();
  if (position != kNoPosition) raise_high_water(position);
  return position;
}

void PinTable::raise_high_water(std::uint32_t position) {
  std::atomic<std::uint32_t>& high_water = header()->high_water;
  std::uint32_t mark = high_water.load(std::memory_order_seq_cst);
  while (mark <= position && !high_water.compare_exchange_weak(mark, position + 1, std::memory_order_seq_cst)) {
  }
}

void PinTable::unpin(std::uint32_t position) {
  pins_[position].store(0, std::memory_order_release);
  give_position(position);
}

std::uint64_t PinTable::pin_at(std::uint32_t position) const {
  return position < reserved_pins() ? pins_[position].load(std::memory_order_relaxed) : 0;
}

std::uint32_t PinTable::in_use() const {
  const std::uint32_t used = state_->fresh.load(std::memory_order_acquire);
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < used; ++i)
    count += pins_[i].load(std::memory_order_relaxed) != 0 ? 1U : 0U;
  return count;
}

Status PinTable::full_error() const {
  return Status(Code::kStoreFull,
                concat("this process holds ", in_use(), " different objects of the store, and its pin table has ",
                       capacity_, " entries; release values that are no longer needed"));
}

Status PinTable::copy_from(const PinTable& source, std::span<const std::uint32_t> positions) {
  const std::uint32_t used = std::min(source.state_->fresh.load(std::memory_order_acquire), reserved_pins());
  if (const auto last = std::max_element(positions.begin(), positions.end());
      last != positions.end() && *last >= used) {
    return Status(Code::kInvalidArgument,
                  concat("a pin table of ", reserved_pins(), " entries cannot replace one that uses ", *last + 1));
  }
  header()->high_water.store(used, std::memory_order_seq_cst);
  state_->fresh.store(used, std::memory_order_relaxed);
  for (const std::uint32_t position : positions)
    pins_[position].exchange(source.pins_[position].load(std::memory_order_acquire), std::memory_order_seq_cst);
  for (std::uint32_t position = 0; position < used; ++position) {
    if (pins_[position].load(std::memory_order_relaxed) == 0) give_position(position);
  }
  return Status::ok();
}

}  // namespace entrepot
