#include "shm/directory.h"

#include "base/crc32c.h"

namespace entrepot {

std::uint32_t slot_crc(const Slot& slot, std::uint32_t generation) {
  return Crc32c()
      .add(slot.id)
      .add(slot.session)
      .add(slot.record_offset)
      .add(slot.record_bytes)
      .add(slot.payload_bytes)
      .add(slot.sealed_unix_ns)
      .add(generation)
      .value();
}

DirectoryWriter::DirectoryWriter(ControlMemory& memory)
    : table_(memory.region(RegionKind::kSlots), memory.root().slot_high_water) {}

DirectoryAdoption DirectoryWriter::adopt() {
  DirectoryAdoption adoption;
  table_.adopt([&](std::uint32_t index, const Slot& slot) {
    const std::uint64_t word = slot.word.load(std::memory_order_acquire);
    const auto state = static_cast<ObjectState>(Word::state(word));
    if (state == ObjectState::kUnsealed) return false;
    const bool is_intact = slot.crc == slot_crc(slot, Word::generation(word));
    const bool findable =
        state == ObjectState::kSealed || state == ObjectState::kEvicting || state == ObjectState::kSpilled;
    if (is_intact && findable) {
      adoption.sealed.push_back(index);
    } else if (is_intact && state == ObjectState::kDeleting) {
      adoption.deleting.push_back(index);
    } else if (is_intact && state == ObjectState::kDropped) {
      adoption.dropped.push_back(index);
    } else {
      // Not freed here: it may be pinned, and which blobs it references is unknown.
      mark_lost(index);
      adoption.damaged.push_back(index);
    }
    return true;
  });
  return adoption;
}

std::uint64_t DirectoryWriter::publish(std::uint32_t number, const SlotFields& fields, ObjectState state,
                                       MemoryKind kind) {
  Slot& slot = table_.at(number);
  slot_id_store(slot, fields.id);
  slot.session = fields.session;
  slot.record_offset = fields.record_offset;
  slot.record_bytes = fields.record_bytes;
  slot.payload_bytes = fields.payload_bytes;
  slot.sealed_unix_ns = fields.sealed_unix_ns;
  slot.locality_set = fields.locality_set;
  slot.creator = fields.creator;
  slot.spill_location = 0;
  slot.hints.store(fields.hints.word(), std::memory_order_relaxed);
  slot.crc = slot_crc(slot, table_.next_generation(number));
  return table_.publish(number, static_cast<std::uint8_t>(state), static_cast<std::uint8_t>(kind));
}

DirectoryReader::DirectoryReader(const ControlView& view)
    : root_(&view.root()),
      slots_(view.region(RegionKind::kSlots).as<Slot>()),
      capacity_(static_cast<std::uint32_t>(view.region(RegionKind::kSlots).capacity())),
      index_(view) {}

template <bool (*accepts)(std::uint64_t)>
std::optional<SlotSnapshot> DirectoryReader::find_if(const IdBytes& id) const {
  SlotSnapshot snapshot;
  const auto match = [&](std::uint32_t number) {
    if (number >= capacity_) return false;
    const Slot& slot = slots_[number];
    snapshot.word = slot.word.load(std::memory_order_acquire);
    return accepts(snapshot.word) && slot_id_equals(slot, id) &&
           slot.word.load(std::memory_order_acquire) == snapshot.word;
  };
  const std::optional<std::uint32_t> number = index_.probe(hash_id(id), match);
  if (!number) return std::nullopt;
  snapshot.slot = *number;
  return snapshot;
}

template <bool (*accepts)(std::uint64_t)>
std::optional<SlotSnapshot> DirectoryReader::at_if(std::uint32_t number, std::uint32_t generation,
                                                   const IdBytes& id) const {
  if (number >= capacity_ || number >= high_water()) return std::nullopt;
  const Slot& slot = slots_[number];
  const SlotSnapshot snapshot{number, slot.word.load(std::memory_order_acquire)};
  if (!accepts(snapshot.word) || snapshot.generation() != generation || !slot_id_equals(slot, id) ||
      slot.word.load(std::memory_order_acquire) != snapshot.word) {
    return std::nullopt;
  }
  return snapshot;
}

std::optional<SlotSnapshot> DirectoryReader::find(const IdBytes& id) const { return find_if<is_sealed>(id); }

std::optional<SlotSnapshot> DirectoryReader::at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) const {
  return at_if<is_sealed>(slot, generation, id);
}

std::optional<SlotSnapshot> DirectoryReader::find_existing(const IdBytes& id) const { return find_if<has_record>(id); }

std::optional<SlotSnapshot> DirectoryReader::existing_at(std::uint32_t slot, std::uint32_t generation,
                                                         const IdBytes& id) const {
  return at_if<has_record>(slot, generation, id);
}

}  // namespace entrepot
