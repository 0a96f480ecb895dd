#include "shm/blobs.h"

#include "base/crc32c.h"

namespace entrepot {

std::uint32_t blob_crc(const Blob& blob, std::uint32_t generation) {
  return Crc32c()
      .add(blob.offset)
      .add(blob.length)
      .add(blob.segment)
      .add(blob.segment_generation)
      .add(generation)
      .value();
}

BlobWriter::BlobWriter(ControlMemory& memory)
    : table_(memory.region(RegionKind::kBlobs), memory.root().blob_high_water) {}

BlobAdoption BlobWriter::adopt() {
  BlobAdoption adoption;
  table_.adopt([&](std::uint32_t index, const Blob& blob) {
    const std::uint64_t word = blob.word.load(std::memory_order_acquire);
    const auto state = static_cast<BlobState>(Word::state(word));
    if (state == BlobState::kSealed && blob.crc == blob_crc(blob, Word::generation(word))) {
      adoption.sealed.push_back(index);
    } else if (state == BlobState::kSpilled && blob.spill_location != 0) {
      adoption.spilled.push_back(
          index);  // its copy is checked on reload; its place may be half written and is not used
    } else {
      table_.set_state(index, static_cast<std::uint8_t>(BlobState::kLost));
      adoption.damaged.push_back(index);
    }
    return true;
  });
  references_.assign(table_.size(), 0);
  return adoption;
}

std::uint32_t BlobWriter::publish(std::uint32_t number, const BlobLocation& place, MemoryKind kind) {
  Blob& blob = table_.at(number);
  blob.offset = place.offset;
  blob.length = place.length;
  blob.segment = place.segment;
  blob.segment_generation = place.segment_generation;
  blob.spill_location = 0;
  blob.checksum = 0;
  blob.crc = blob_crc(blob, table_.next_generation(number));
  if (references_.size() <= number) references_.resize(std::size_t{number} + 1, 0);
  references_[number] = 0;
  return Word::generation(
      table_.publish(number, static_cast<std::uint8_t>(BlobState::kSealed), static_cast<std::uint8_t>(kind)));
}

void BlobWriter::free(std::uint32_t blob) { table_.free(blob); }

void BlobWriter::mark_spilled(std::uint32_t blob) {
  table_.set_state(blob, static_cast<std::uint8_t>(BlobState::kSpilled));
}

void BlobWriter::publish_again(std::uint32_t number, const BlobLocation& place, MemoryKind kind) {
  Blob& blob = table_.at(number);
  blob.offset = place.offset;
  blob.segment = place.segment;
  blob.segment_generation = place.segment_generation;
  const std::uint64_t old = table_.word(number);
  blob.crc = blob_crc(blob, Word::generation(old));
  blob.word.store(Word::make(Word::generation(old), static_cast<std::uint8_t>(BlobState::kSealed),
                             static_cast<std::uint8_t>(kind), Word::flags(old)),
                  std::memory_order_release);
}

std::uint32_t BlobWriter::publish_spilled(std::uint32_t number, std::uint64_t length, std::uint64_t location) {
  Blob& blob = table_.at(number);
  blob.offset = 0;
  blob.length = length;
  blob.segment = 0;
  blob.segment_generation = 0;
  blob.spill_location = location;
  blob.checksum = 0;
  blob.crc = blob_crc(blob, table_.next_generation(number));
  if (references_.size() <= number) references_.resize(std::size_t{number} + 1, 0);
  references_[number] = 0;
  return Word::generation(table_.publish(number, static_cast<std::uint8_t>(BlobState::kSpilled)));
}

void BlobWriter::add_reference(std::uint32_t blob) {
  if (references_.size() <= blob) references_.resize(std::size_t{blob} + 1, 0);
  ++references_[blob];
}

std::uint32_t BlobWriter::drop_reference(std::uint32_t blob) { return --references_[blob]; }

std::uint32_t BlobWriter::references(std::uint32_t blob) const {
  return blob < references_.size() ? references_[blob] : 0;
}

bool BlobWriter::is_sealed(std::uint32_t blob, std::uint32_t generation) const {
  return table_.is_live(blob, generation) &&
         static_cast<BlobState>(Word::state(table_.word(blob))) == BlobState::kSealed;
}

bool BlobWriter::exists(std::uint32_t blob, std::uint32_t generation) const {
  if (!table_.is_live(blob, generation)) return false;
  return state(blob) == BlobState::kSealed || state(blob) == BlobState::kSpilled;
}

BlobLocation BlobWriter::place(std::uint32_t number) const {
  const Blob& blob = table_.at(number);
  return {blob.segment, blob.offset, blob.length, blob.segment_generation};
}

BlobReader::BlobReader(const ControlView& view)
    : root_(&view.root()),
      blobs_(view.region(RegionKind::kBlobs).as<Blob>()),
      capacity_(static_cast<std::uint32_t>(view.region(RegionKind::kBlobs).capacity())) {}

std::optional<BlobLocation> BlobReader::resolve(std::uint32_t number, std::uint32_t generation) const {
  if (number >= capacity_ || number >= root_->blob_high_water.load(std::memory_order_acquire)) return std::nullopt;
  const Blob& blob = blobs_[number];
  const std::uint64_t word = blob.word.load(std::memory_order_acquire);
  if (static_cast<BlobState>(Word::state(word)) != BlobState::kSealed || Word::generation(word) != generation) {
    return std::nullopt;
  }
  return BlobLocation{blob.segment, blob.offset, blob.length, blob.segment_generation};
}

}  // namespace entrepot
