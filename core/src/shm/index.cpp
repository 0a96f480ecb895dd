#include "shm/index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.h"

namespace entrepot {

namespace {

// Full tables make probes long: when more than 5/8 of the entries are used (including tombstones), the table is rebuilt
// into one whose live entries fill at most half.
constexpr bool too_full(std::uint64_t used, std::uint64_t entries) { return used * 8 > entries * 5; }

std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

struct IdWords {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint32_t c = 0;
};
static_assert(offsetof(Slot, id) % 8 == 0 && kIdBytes == 20, "an ID is read as 8 + 8 + 4 bytes");

IdWords words_of(const IdBytes& id) {
  IdWords words;
  std::memcpy(&words.a, id.data(), 8);
  std::memcpy(&words.b, id.data() + 8, 8);
  std::memcpy(&words.c, id.data() + 16, 4);
  return words;
}

// atomic_ref needs a mutable object; loads through it do not write, so read-only mappings are fine.
template <class T>
std::atomic_ref<T> part_of(const Slot& slot, std::size_t offset) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(const_cast<std::uint8_t*>(slot.id.data()) + offset));
}

}  // namespace

bool slot_id_equals(const Slot& slot, const IdBytes& id) {
  const IdWords words = words_of(id);
  return part_of<std::uint64_t>(slot, 0).load(std::memory_order_acquire) == words.a &&
         part_of<std::uint64_t>(slot, 8).load(std::memory_order_acquire) == words.b &&
         part_of<std::uint32_t>(slot, 16).load(std::memory_order_acquire) == words.c;
}

void slot_id_store(Slot& slot, const IdBytes& id) {
  const IdWords words = words_of(id);
  part_of<std::uint64_t>(slot, 0).store(words.a, std::memory_order_release);
  part_of<std::uint64_t>(slot, 8).store(words.b, std::memory_order_release);
  part_of<std::uint32_t>(slot, 16).store(words.c, std::memory_order_release);
}

std::uint32_t index_max_log2(const Region& region) {
  // There are two areas of 2^(max + 1) entries each.
  return static_cast<std::uint32_t>(std::bit_width(region.capacity()) - 1 - 2);
}

IndexWriter::IndexWriter(ControlMemory& memory)
    : region_(&memory.region(RegionKind::kIndex)),
      root_(&memory.root()),
      slots_(memory.region(RegionKind::kSlots).as<Slot>()),
      max_log2_(index_max_log2(*region_)) {}

IndexWriter::Entry* IndexWriter::table(std::uint64_t word) const {
  return region_->as<Entry>() + index_first_entry(word, max_log2_);
}

std::uint32_t IndexWriter::smallest_log2(std::uint64_t objects) const {
  std::uint32_t log2 = kIndexMinLog2;
  while (log2 < max_log2_ && objects * 2 > (1ULL << log2))
    ++log2;
  return log2;
}

// Prepares an empty, unpublished table with pages, in the area not used by the published table.
Status IndexWriter::open_table(std::uint32_t log2, std::uint64_t& word) {
  if (log2 < kIndexMinLog2 || log2 > max_log2_) {
    return Status(Code::kStoreFull, concat("the index cannot have 2^", log2, " entries: the allowed range is 2^",
                                           kIndexMinLog2, " to 2^", max_log2_, "; delete unneeded objects"));
  }
  const std::uint64_t published = root_->index_word.load(std::memory_order_relaxed);
  const std::uint32_t area = IndexWord::log2(published) == 0 ? 0 : 1 - IndexWord::area(published);
  word = IndexWord::make(log2, area, (published >> 16) + 1);
  const std::uint64_t offset = index_first_entry(word, max_log2_) * sizeof(Entry);
  const std::uint64_t bytes = (1ULL << log2) * sizeof(Entry);
  // Cleared even though it should be empty: a previous daemon may have died while filling it.
  RETURN_IF_ERROR(region_->discard_range(offset, bytes));
  return region_->ensure_range(offset, bytes);
}

void IndexWriter::publish(std::uint64_t word) {
  word_ = word;
  log2_ = IndexWord::log2(word);
  version_ = word >> 16;
  root_->index_word.store(word, std::memory_order_release);
}

Status IndexWriter::discard(std::uint64_t word) {
  if (IndexWord::log2(word) < kIndexMinLog2 || IndexWord::log2(word) > max_log2_) return Status::ok();
  return region_->discard_range(index_first_entry(word, max_log2_) * sizeof(Entry),
                                (1ULL << IndexWord::log2(word)) * sizeof(Entry));
}

Status IndexWriter::reset(std::uint32_t expected) {
  const std::uint64_t old = root_->index_word.load(std::memory_order_relaxed);
  std::uint64_t word = 0;
  RETURN_IF_ERROR(open_table(smallest_log2(expected), word));
  live_ = 0;
  tombstones_ = 0;
  publish(word);
  return discard(old);
}

void IndexWriter::put(Entry* table, std::uint64_t mask, std::uint64_t entry, std::uint64_t home) {
  std::uint64_t at = home & mask;
  while (true) {
    const std::uint32_t existing = IndexEntry::slot_plus_one(table[at].load(std::memory_order_relaxed));
    if (existing == IndexEntry::kTombstone) {
      --tombstones_;
      break;
    }
    if (existing == 0) break;
    at = (at + 1) & mask;
  }
  table[at].store(entry, std::memory_order_release);
}

Status IndexWriter::rebuild(std::uint32_t log2) {
  if (log2 <= max_log2_ && live_ >= (1ULL << log2)) {
    return Status(Code::kInvalidArgument, concat("an index of 2^", log2, " entries cannot hold ", live_, " objects"));
  }
  std::uint64_t word = 0;
  RETURN_IF_ERROR(open_table(log2, word));
  const std::uint64_t old = word_;
  const Entry* from = table(old);
  Entry* to = table(word);
  const std::uint64_t mask = (1ULL << log2) - 1;
  tombstones_ = 0;
  for (std::uint64_t i = 0; i < (1ULL << log2_); ++i) {
    const std::uint64_t entry = from[i].load(std::memory_order_relaxed);
    const std::uint32_t slot_plus_one = IndexEntry::slot_plus_one(entry);
    if (slot_plus_one == 0 || slot_plus_one == IndexEntry::kTombstone) continue;
    put(to, mask, entry, hash_id(slots_[slot_plus_one - 1].id));
  }
  publish(word);
  return discard(old);
}

Status IndexWriter::prepare() {
  const std::uint64_t entries = 1ULL << log2_;
  if (too_full(live_ + tombstones_ + 1, entries)) {
    const std::uint32_t target = smallest_log2(live_ + 1);
    Status rebuilt;
    if (live_ + 2 > (1ULL << max_log2_)) {
      rebuilt = Status(Code::kStoreFull, concat("the index is full: of 2^", max_log2_, " entries, it uses ", live_,
                                                "; delete unneeded objects"));
    } else if (target != log2_ || tombstones_ * 8 > entries) {
      rebuilt = rebuild(target);
    }
    // Without memory for another table, a fuller one still works as long as probes find an empty entry.
    if (!rebuilt.is_ok() && live_ + tombstones_ + 2 > (1ULL << log2_)) return rebuilt;
  }
  return Status::ok();
}

std::uint64_t IndexWriter::trim() {
  const std::uint32_t before = log2_;
  const std::uint32_t target = smallest_log2(live_ + 1);
  if (before < target + 2 || !rebuild(target).is_ok()) return 0;
  return ((1ULL << before) - (1ULL << target)) * sizeof(Entry);
}

Status IndexWriter::insert(const IdBytes& id, std::uint32_t slot) {
  RETURN_IF_ERROR(prepare());
  const std::uint64_t hash = hash_id(id);
  put(table(word_), (1ULL << log2_) - 1, IndexEntry::make(slot, tag_of(hash)), hash);
  ++live_;
  return Status::ok();
}

std::optional<std::uint64_t> IndexWriter::position_of(const IdBytes& id, std::uint32_t slot) const {
  if (log2_ == 0) return std::nullopt;
  const std::uint64_t hash = hash_id(id);
  const std::uint64_t expected_entry = IndexEntry::make(slot, tag_of(hash));
  const std::uint64_t mask = (1ULL << log2_) - 1;
  const Entry* entries = table(word_);
  for (std::uint64_t i = 0, at = hash & mask; i <= mask; ++i, at = (at + 1) & mask) {
    const std::uint64_t entry = entries[at].load(std::memory_order_relaxed);
    if (entry == expected_entry) return at;
    if (IndexEntry::slot_plus_one(entry) == 0) return std::nullopt;
  }
  return std::nullopt;
}

bool IndexWriter::remove(const IdBytes& id, std::uint32_t slot) {
  const std::optional<std::uint64_t> position = position_of(id, slot);
  if (!position) return false;
  const std::uint64_t mask = (1ULL << log2_) - 1;
  Entry* entries = table(word_);
  --live_;
  const auto slot_at = [&](std::uint64_t at) {
    return IndexEntry::slot_plus_one(entries[at & mask].load(std::memory_order_relaxed));
  };
  if (slot_at(*position + 1) != 0) {
    entries[*position].store(IndexEntry::kTombstone, std::memory_order_release);
    ++tombstones_;
    return true;
  }
  // At the end of a run, no probe has to pass this entry, nor the tombstones before it.
  std::uint64_t at = *position;
  entries[at].store(0, std::memory_order_release);
  while (slot_at(at - 1) == IndexEntry::kTombstone) {
    at = (at - 1) & mask;
    entries[at].store(0, std::memory_order_release);
    --tombstones_;
  }
  return true;
}

bool IndexWriter::replace(const IdBytes& id, std::uint32_t old_slot, std::uint32_t new_slot) {
  const std::optional<std::uint64_t> position = position_of(id, old_slot);
  if (!position) return false;
  table(word_)[*position].store(IndexEntry::make(new_slot, tag_of(hash_id(id))), std::memory_order_release);
  return true;
}

std::optional<std::uint32_t> IndexWriter::find(const IdBytes& id) const {
  if (log2_ == 0) return std::nullopt;
  const std::uint64_t hash = hash_id(id);
  const std::uint64_t mask = (1ULL << log2_) - 1;
  const Entry* entries = table(word_);
  for (std::uint64_t i = 0, at = hash & mask; i <= mask; ++i, at = (at + 1) & mask) {
    const std::uint64_t entry = entries[at].load(std::memory_order_relaxed);
    const std::uint32_t slot_plus_one = IndexEntry::slot_plus_one(entry);
    if (slot_plus_one == 0) return std::nullopt;
    if (slot_plus_one == IndexEntry::kTombstone || IndexEntry::tag(entry) != tag_of(hash)) continue;
    if (slots_[slot_plus_one - 1].id == id) return slot_plus_one - 1;
  }
  return std::nullopt;
}

IndexReader::IndexReader(const ControlView& view)
    : root_(&view.root()),
      entries_(view.region(RegionKind::kIndex).as<Entry>()),
      max_log2_(index_max_log2(view.region(RegionKind::kIndex))) {}

}  // namespace entrepot
