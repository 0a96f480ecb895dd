#include "store/object/consumer_table.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/hash.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

std::uint32_t consumption_crc(const Consumption& entry, std::uint32_t generation) {
  return Crc32c().add(entry.consumer).add(entry.slot).add(entry.slot_generation).add(generation).value();
}

}  // namespace

ConsumerTable::ConsumerTable(ControlMemory& memory)
    : table_(memory.region(RegionKind::kConsumptions), memory.region(RegionKind::kConsumptions).marks().high_water) {}

std::uint32_t ConsumerTable::adopt(const DirectoryWriter& directory) {
  std::uint32_t damaged = 0;
  table_.adopt([&](std::uint32_t index, const Consumption& entry) {
    if (entry.crc != consumption_crc(entry, Word::generation(table_.word(index)))) {
      ++damaged;
      return false;
    }
    if (!directory.is_live(entry.slot, entry.slot_generation) || !directory.is_findable(entry.slot)) return false;
    by_slot_[entry.slot].push_back(index);
    return true;
  });
  return damaged;
}

Result<std::uint32_t> ConsumerTable::record(std::uint32_t slot, std::uint32_t generation, std::string_view consumer) {
  const std::uint64_t key = hash_text(consumer);
  if (const auto counted_entries = by_slot_.find(slot); counted_entries != by_slot_.end()) {
    const bool counted = std::any_of(counted_entries->second.begin(), counted_entries->second.end(),
                                     [&](std::uint32_t index) { return table_.at(index).consumer == key; });
    if (counted) return count(slot);
  }
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  Consumption& entry = table_.at(index);
  entry.consumer = key;
  entry.slot = slot;
  entry.slot_generation = generation;
  entry.reserved = 0;
  entry.crc = consumption_crc(entry, table_.next_generation(index));
  ENTREPOT_SYNC_POINT("consumers.fields");
  table_.publish(index, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("consumers.published");
  by_slot_[slot].push_back(index);
  return count(slot);
}

std::uint32_t ConsumerTable::count(std::uint32_t slot) const {
  const auto it = by_slot_.find(slot);
  return it == by_slot_.end() ? 0 : static_cast<std::uint32_t>(it->second.size());
}

std::vector<std::uint32_t> ConsumerTable::slots() const {
  std::vector<std::uint32_t> result;
  for (const auto& [slot, entries] : by_slot_)
    result.push_back(slot);
  return result;
}

void ConsumerTable::forget(std::uint32_t slot) {
  const auto it = by_slot_.find(slot);
  if (it == by_slot_.end()) return;
  for (const std::uint32_t index : it->second)
    table_.free(index);
  by_slot_.erase(it);
}

}  // namespace entrepot
