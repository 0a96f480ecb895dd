#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "base/text.h"
#include "os/memfd.h"
#include "shm/pins.h"

namespace entrepot {

namespace {

// Victims of one scan, indexed by pin word: open addressing, at most half full.
class VictimSet {
 public:
  explicit VictimSet(std::span<const PinTarget> victims)
      : mask_(std::bit_ceil(std::max<std::size_t>(victims.size() * 2, 16)) - 1), places_(mask_ + 1) {
    for (std::size_t i = 0; i < victims.size(); ++i) {
      const std::uint64_t pin = PinWord::make(victims[i].slot, victims[i].generation);
      std::size_t at = mix64(pin) & mask_;
      while (places_[at].pin != 0 && places_[at].pin != pin)
        at = (at + 1) & mask_;
      places_[at].pin = pin;
    }
  }

  void mark(std::uint64_t pin) {
    if (const std::size_t at = find(pin); places_[at].pin == pin) places_[at].pinned = 1;
  }
  [[nodiscard]] std::uint8_t pinned(std::uint64_t pin) const { return places_[find(pin)].pinned; }

 private:
  struct Place {
    std::uint64_t pin = 0;  // 0: empty; no pin word is 0
    std::uint8_t pinned = 0;
  };

  [[nodiscard]] std::size_t find(std::uint64_t pin) const {
    std::size_t at = mix64(pin) & mask_;
    while (places_[at].pin != 0 && places_[at].pin != pin)
      at = (at + 1) & mask_;
    return at;
  }

  std::size_t mask_;
  std::vector<Place> places_;
};

}  // namespace

std::uint32_t PinScanner::bounded_high_water(const Table& table) {
  return std::min(table.header->high_water.load(std::memory_order_seq_cst), table.reserved_pins);
}

Status PinScanner::add(std::uint32_t client, int fd, std::uint32_t capacity) {
  RETURN_IF_ERROR(os::check_sealed(fd).with_context(concat("pin table of client ", client)));
  ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(fd));
  if (capacity > kMaxPinsPerClient || bytes < pin_table_bytes(capacity)) {
    return Status(Code::kInvalidArgument, concat("pin table of client ", client, " has ", bytes, " bytes, but its ",
                                                 capacity, " pins need ", pin_table_bytes(capacity)));
  }
  if (has(client)) return Status(Code::kInternal, concat("client ", client, " already has a pin table"));
  Table table;
  ASSIGN_OR_RETURN(table.mapping, os::Mapping::map(fd, 0, pin_table_bytes(capacity), os::Access::kReadWrite));
  ASSIGN_OR_RETURN(const std::uint64_t present_bytes, os::resident_bytes(fd));
  table.client = client;
  table.capacity = capacity;
  table.reserved_pins = pins_fitting(present_bytes, capacity);  // as far as it has grown, under any daemon
  std::byte* const memory = table.mapping.data();
  add(std::move(table), memory);
  return Status::ok();
}

Status PinScanner::add_private(std::uint32_t client, const PinTable& source) {
  if (has(client)) return Status(Code::kInternal, concat("client ", client, " already has a pin table"));
  Table table;
  table.client = client;
  table.capacity = source.capacity();
  table.reserved_pins = source.reserved_pins();
  add(std::move(table), source.memory());
  return Status::ok();
}

void PinScanner::add(Table table, std::byte* memory) {
  table.header = reinterpret_cast<const PinTableHeader*>(memory);
  auto* const words = reinterpret_cast<std::atomic<std::uint64_t>*>(memory + sizeof(PinTableHeader));
  table.ring = words;
  table.pins = words + kAccessRing;
  std::erase(unreadable_, table.client);
  table.drained = table.header->accesses.load(std::memory_order_relaxed);
  tables_.push_back(std::move(table));
}

void PinScanner::add_unreadable(std::uint32_t client) {
  if (!has(client) && !is_unreadable(client)) unreadable_.push_back(client);
}

bool PinScanner::is_unreadable(std::uint32_t client) const {
  return std::find(unreadable_.begin(), unreadable_.end(), client) != unreadable_.end();
}

void PinScanner::grow(std::uint32_t client, std::uint32_t reserved_pins) {
  for (Table& table : tables_) {
    if (table.client == client) table.reserved_pins = std::clamp(reserved_pins, table.reserved_pins, table.capacity);
  }
}

std::uint32_t PinScanner::reserved_pins(std::uint32_t client) const {
  const auto match =
      std::find_if(tables_.begin(), tables_.end(), [client](const Table& table) { return table.client == client; });
  return match == tables_.end() ? 0 : match->reserved_pins;
}

bool PinScanner::can_place(std::uint32_t client, std::uint32_t position) const {
  return std::ranges::any_of(
      tables_, [&](const Table& table) { return table.client == client && position < bounded_high_water(table); });
}

void PinScanner::place(std::uint32_t client, std::uint32_t position, const PinTarget& target) {
  for (const Table& table : tables_) {
    if (table.client != client || position >= bounded_high_water(table)) continue;
    table.pins[position].exchange(PinWord::make(target.slot, target.generation), std::memory_order_seq_cst);
  }
}

void PinScanner::remove(std::uint32_t client) {
  std::erase(unreadable_, client);
  std::erase_if(tables_, [client](const Table& table) { return table.client == client; });
}

bool PinScanner::has(std::uint32_t client) const {
  return std::any_of(tables_.begin(), tables_.end(), [client](const Table& table) { return table.client == client; });
}

std::vector<std::uint8_t> PinScanner::scan(std::span<const PinTarget> victims) const {
  std::vector<std::uint8_t> pinned(victims.size(), unreadable_.empty() ? 0 : 1);
  if (victims.empty() || !unreadable_.empty()) return pinned;
  VictimSet set(victims);
  for_each([&](std::uint32_t, const PinTarget& target) { set.mark(PinWord::make(target.slot, target.generation)); });
  for (std::size_t i = 0; i < victims.size(); ++i) {
    pinned[i] = set.pinned(PinWord::make(victims[i].slot, victims[i].generation));
  }
  return pinned;
}

std::vector<PinCount> PinScanner::pinned_by(const PinTarget& target) const {
  std::vector<PinCount> counts;
  for_each([&](std::uint32_t client, const PinTarget& pin) {
    if (pin != target) return;
    if (counts.empty() || counts.back().client != client) counts.push_back({client, 0});
    ++counts.back().pins;
  });
  for (const std::uint32_t client : unreadable_)
    counts.push_back({client, 0});
  return counts;
}

std::uint32_t PinScanner::count(std::uint32_t client) const {
  std::uint32_t pins = 0;
  for_each([&](std::uint32_t owner, const PinTarget&) { pins += owner == client ? 1U : 0U; });
  return pins;
}

}  // namespace entrepot
