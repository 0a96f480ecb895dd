#include "store/object/consumer_table.h"

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
    link(index);
    return true;
  });
  return damaged;
}

Result<std::uint32_t> ConsumerTable::record(std::uint32_t slot, std::uint32_t generation, std::string_view consumer) {
  const std::uint64_t key = hash_text(consumer);
  for (std::uint32_t index = first_of(slot); index != kNoEntry; index = of_slot_.next(index)) {
    if (table_.at(index).consumer == key) return count(slot);
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
  link(index);
  return count(slot);
}

std::uint32_t ConsumerTable::first_of(std::uint32_t slot) const {
  const std::uint32_t* first =
      by_slot_.find(mix64(slot), [&](std::uint32_t index) { return table_.at(index).slot == slot; });
  return first == nullptr ? kNoEntry : *first;
}

void ConsumerTable::link(std::uint32_t index) {
  const std::uint32_t slot = table_.at(index).slot;
  std::uint32_t first = first_of(slot);
  if (first == kNoEntry) {
    by_slot_.insert(mix64(slot), index);
  } else {
    by_slot_.replace(mix64(slot), first, index);
  }
  of_slot_.push_front(first, index);
}

std::uint32_t ConsumerTable::count(std::uint32_t slot) const {
  std::uint32_t count = 0;
  for (std::uint32_t index = first_of(slot); index != kNoEntry; index = of_slot_.next(index))
    ++count;
  return count;
}

std::vector<std::uint32_t> ConsumerTable::slots() const {
  std::vector<std::uint32_t> result;
  by_slot_.for_each([&](std::uint32_t index) { result.push_back(table_.at(index).slot); });
  return result;
}

void ConsumerTable::forget(std::uint32_t slot) {
  std::uint32_t first = first_of(slot);
  if (first == kNoEntry) return;
  by_slot_.erase(mix64(slot), first);
  while (first != kNoEntry) {
    const std::uint32_t index = first;
    of_slot_.remove(first, index);
    table_.free(index);
  }
}

std::uint64_t ConsumerTable::trim() {
  const std::uint64_t bytes = table_.trim();
  if (bytes == 0) return 0;
  by_slot_.trim();
  of_slot_.trim(table_.size());
  return bytes;
}

}  // namespace entrepot
