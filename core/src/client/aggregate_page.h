// AggregatePage: a hash table of partial aggregates within one page, which is a page of records as soon as it is sealed.
//
//   PageHeader, ChunkHeader, records ──▶   free   ◀── slots
//
// A record is the key's hash, 8 bytes; the states of the aggregates; and the key. Slots are at the end of the page,
// where they are cut off at its seal; they double towards the records when two thirds of them are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "client/client.h"
#include "client/page_format.h"
#include "client/row_keys.h"

namespace entrepot {

// Numbers are stored in manifests: see core/python/entrepot/_services/aggregate_plan.py.
enum class AggregateKind : std::uint8_t {
  kCount = 0,
  kSumSigned = 1,
  kSumUnsigned = 2,
  kSumFloat = 3,
  kMinSigned = 4,
  kMinUnsigned = 5,
  kMinFloat = 6,
  kMaxSigned = 7,
  kMaxUnsigned = 8,
  kMaxFloat = 9,
};
inline constexpr std::uint8_t kAggregateKinds = 10;

__extension__ using Int128 = __int128;  // the state of a sum of integers, which cannot overflow

// Numbers in records, which may lie anywhere.
template <class T>
[[nodiscard]] T load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <class T>
void store_as(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// The states of a record.
class AggregateLayout {
 public:
  AggregateLayout() = default;
  // kInvalidArgument: a number is no AggregateKind.
  [[nodiscard]] static Result<AggregateLayout> create(std::span<const std::uint8_t> kinds);
  [[nodiscard]] const std::vector<AggregateKind>& kinds() const { return kinds_; }
  [[nodiscard]] std::uint64_t offset(std::size_t i) const { return offsets_[i]; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of all states
  // Of the record of a key with so many bytes.
  [[nodiscard]] std::uint64_t record_bytes(std::uint64_t key) const { return sizeof(std::uint64_t) + bytes_ + key; }
  void merge(std::byte* into, const std::byte* from) const;

 private:
  std::vector<AggregateKind> kinds_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t bytes_ = 0;
};

// Values of one aggregate: of 8 bytes each, or none for a count.
struct ValueColumn {
  const std::byte* data = nullptr;
  const std::uint8_t* valid = nullptr;  // a byte for each row; null: all are valid
};
// Adds a row's value to a state.
void add_value(AggregateKind kind, std::byte* state, const ValueColumn& column, std::uint64_t row);

class AggregatePage {
 public:
  AggregatePage(std::shared_ptr<WritableBlob> blob, const AggregateLayout& layout, std::uint32_t prefix,
                std::uint32_t bits);

  // Returns the states of the key, zeroed if it is new; null: it is new, and the page is full.
  [[nodiscard]] std::byte* find_or_insert(const RowKey& key);
  void prefetch(std::uint32_t tag) const { __builtin_prefetch(slots_ + (tag & mask_)); }
  // Moves the keys whose tags have the bit behind this page's prefix into `other`, an empty page of the same size.
  void split(AggregatePage& other);
  // Writes the header of the only chunk, and ends the table.
  [[nodiscard]] std::shared_ptr<WritableBlob> take();
  // Writes it, and copies the page to `to`, which has used() bytes. Then the table is empty.
  void move_to(std::byte* to);

  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t records() const { return records_; }
  [[nodiscard]] std::uint64_t bytes() const { return blob_->bytes(); }
  [[nodiscard]] std::uint32_t prefix() const { return prefix_; }
  [[nodiscard]] std::uint32_t bits() const { return bits_; }
  // Whether a record of so many bytes fits into an empty page.
  [[nodiscard]] static bool fits(std::uint64_t page_bytes, std::uint64_t record_bytes);

 private:
  struct Slot {
    std::uint32_t tag;
    std::uint32_t at;  // of the record in the page, divided by 8; 0: the slot is empty
  };
  [[nodiscard]] bool grow();
  void clear_slots(std::uint64_t count);
  void write_chunk_header();
  void insert_slot(std::uint32_t tag, std::uint64_t at);
  std::byte* append(const std::byte* record, std::uint64_t framed);  // for which there is room

  std::shared_ptr<WritableBlob> blob_;
  const AggregateLayout& layout_;
  std::byte* data_;
  Slot* slots_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint64_t used_ = kPageOverheadBytes;
  std::uint64_t records_ = 0;
  std::uint32_t prefix_;  // the first bits_ bits of all tags in it
  std::uint32_t bits_;
};

}  // namespace entrepot
