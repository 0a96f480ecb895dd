#include "client/aggregate_page.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kFirstPageSlots = 256;
constexpr std::uint64_t kNoValue = 0;  // of an extreme: no value yet; only NaN so far; a value
constexpr std::uint64_t kOnlyNan = 1;
constexpr std::uint64_t kValue = 2;

template <class T>
void add_to(std::byte* state, T value) {
  store_as<T>(state, load_as<T>(state) + value);
}

// State: what it is, 8 bytes, and the value.
template <class T, class Better>
void improve(std::byte* state, T value, Better better) {
  const auto before = load_as<std::uint64_t>(state);
  std::uint64_t now = kValue;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) now = kOnlyNan;
  }
  if (now > before || (now == before && better(value, load_as<T>(state + 8)))) {
    store_as(state, now);
    store_as(state + 8, value);
  }
}

template <class T>
void add_one(AggregateKind kind, std::byte* state, T value) {
  switch (kind) {
    case AggregateKind::kMinSigned:
    case AggregateKind::kMinUnsigned:
    case AggregateKind::kMinFloat:
      return improve(state, value, std::less<T>());
    default:
      return improve(state, value, std::greater<T>());
  }
}

std::uint64_t state_bytes(AggregateKind kind) {
  return kind == AggregateKind::kCount || kind == AggregateKind::kSumFloat ? 8 : 16;
}

}  // namespace

Result<AggregateLayout> AggregateLayout::create(std::span<const std::uint8_t> kinds) {
  AggregateLayout layout;
  for (const std::uint8_t number : kinds) {
    if (number >= kAggregateKinds) {
      return Status(Code::kInvalidArgument, concat(unsigned{number}, " is not the number of an aggregate"));
    }
    layout.kinds_.push_back(static_cast<AggregateKind>(number));
    layout.offsets_.push_back(layout.bytes_);
    layout.bytes_ += state_bytes(layout.kinds_.back());
  }
  return layout;
}

void add_value(AggregateKind kind, std::byte* state, const ValueColumn& column, std::uint64_t row) {
  if (column.valid != nullptr && column.valid[row] == 0) return;
  if (kind == AggregateKind::kCount) return add_to<std::uint64_t>(state, 1);
  const std::byte* const value = column.data + row * 8;
  switch (kind) {
    case AggregateKind::kCount:
      return;
    case AggregateKind::kSumSigned:
      return add_to<Int128>(state, load_as<std::int64_t>(value));
    case AggregateKind::kSumUnsigned:
      return add_to<Int128>(state, load_as<std::uint64_t>(value));
    case AggregateKind::kSumFloat:
      return add_to<double>(state, load_as<double>(value));
    case AggregateKind::kMinSigned:
    case AggregateKind::kMaxSigned:
      return add_one(kind, state, load_as<std::int64_t>(value));
    case AggregateKind::kMinUnsigned:
    case AggregateKind::kMaxUnsigned:
      return add_one(kind, state, load_as<std::uint64_t>(value));
    case AggregateKind::kMinFloat:
    case AggregateKind::kMaxFloat:
      return add_one(kind, state, load_as<double>(value));
  }
}

void AggregateLayout::merge(std::byte* into, const std::byte* from) const {
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    std::byte* const state = into + offsets_[i];
    const std::byte* const other = from + offsets_[i];
    switch (const AggregateKind kind = kinds_[i]) {
      case AggregateKind::kCount:
        add_to(state, load_as<std::uint64_t>(other));
        break;
      case AggregateKind::kSumSigned:
      case AggregateKind::kSumUnsigned:
        add_to(state, load_as<Int128>(other));
        break;
      case AggregateKind::kSumFloat:
        add_to(state, load_as<double>(other));
        break;
      default: {
        if (load_as<std::uint64_t>(other) == kNoValue) break;
        const ValueColumn column{other + 8, nullptr};
        add_value(kind, state, column, 0);
      }
    }
  }
}

AggregatePage::AggregatePage(std::shared_ptr<WritableBlob> blob, const AggregateLayout& layout, std::uint32_t prefix,
                             std::uint32_t bits)
    : blob_(std::move(blob)), layout_(layout), data_(blob_->data()), prefix_(prefix), bits_(bits) {
  clear_slots(kFirstPageSlots);
}

bool AggregatePage::fits(std::uint64_t page_bytes, std::uint64_t record_bytes) {
  return kPageOverheadBytes + framed_bytes(Framing::kAligned, record_bytes) + kFirstPageSlots * sizeof(Slot) <=
         page_bytes;
}

void AggregatePage::clear_slots(std::uint64_t count) {
  mask_ = static_cast<std::uint32_t>(count - 1);
  slots_ = reinterpret_cast<Slot*>(data_ + blob_->bytes() / 8 * 8) - count;
  std::memset(static_cast<void*>(slots_), 0, count * sizeof(Slot));
}

void AggregatePage::insert_slot(std::uint32_t tag, std::uint64_t at) {
  std::uint32_t i = tag & mask_;
  while (slots_[i].at != 0)
    i = (i + 1) & mask_;
  slots_[i] = {tag, static_cast<std::uint32_t>(at / 8)};
}

bool AggregatePage::grow() {
  const std::uint64_t count = (std::uint64_t{mask_} + 1) * 2;
  if (used_ + count * sizeof(Slot) > blob_->bytes() / 8 * 8) return false;
  const std::vector<Slot> before(slots_, slots_ + count / 2);
  clear_slots(count);
  for (const Slot& slot : before)
    if (slot.at != 0) insert_slot(slot.tag, std::uint64_t{slot.at} * 8);
  return true;
}

std::byte* AggregatePage::find_or_insert(const RowKey& key) {
  const std::uint32_t tag = key.tag();
  const std::uint64_t length = layout_.record_bytes(key.bytes.size());
  std::uint32_t i = tag & mask_;
  for (; slots_[i].at != 0; i = (i + 1) & mask_) {
    if (slots_[i].tag != tag) continue;
    std::byte* const record = data_ + std::uint64_t{slots_[i].at} * 8;
    if (load_as<std::uint64_t>(record) != length || load_as<std::uint64_t>(record + 8) != key.hash) continue;
    std::byte* const states = record + 16;
    if (key.bytes.empty() || std::memcmp(states + layout_.bytes(), key.bytes.data(), key.bytes.size()) == 0) {
      return states;
    }
  }
  if ((records_ + 1) * 3 > (std::uint64_t{mask_} + 1) * 2) {
    if (!grow()) return nullptr;
    for (i = tag & mask_; slots_[i].at != 0;)
      i = (i + 1) & mask_;
  }
  const std::uint64_t framed = framed_bytes(Framing::kAligned, length);
  if (used_ + framed > static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(slots_) - data_)) return nullptr;
  std::byte* const record = data_ + used_;
  store_as(record, length);
  store_as(record + 8, key.hash);
  std::memset(record + 16, 0, layout_.bytes());
  std::byte* const to = record + 16 + layout_.bytes();
  if (!key.bytes.empty()) std::memcpy(to, key.bytes.data(), key.bytes.size());
  std::memset(to + key.bytes.size(), 0, framed - 8 - length);  // sealed bytes must not depend on what was there before
  slots_[i] = {tag, static_cast<std::uint32_t>(used_ / 8)};
  used_ += framed;
  ++records_;
  return record + 16;
}

std::byte* AggregatePage::append(const std::byte* record, std::uint64_t framed) {
  std::byte* const to = data_ + used_;
  if (to != record) std::memmove(to, record, framed);
  used_ += framed;
  ++records_;
  return to;
}

void AggregatePage::split(AggregatePage& other) {
  const std::uint64_t end = used_;
  const std::uint64_t slots = std::uint64_t{mask_} + 1;
  other.clear_slots(slots);
  clear_slots(slots);
  used_ = kPageOverheadBytes;
  records_ = 0;
  const std::uint32_t bit = 31 - bits_;
  for (std::uint64_t at = kPageOverheadBytes; at < end;) {
    const std::byte* const record = data_ + at;
    const std::uint64_t framed = framed_bytes(Framing::kAligned, load_as<std::uint64_t>(record));
    const std::uint32_t tag = RowKey{{}, load_as<std::uint64_t>(record + 8)}.tag();
    AggregatePage& target = (tag >> bit & 1) != 0 ? other : *this;
    target.insert_slot(tag, static_cast<std::uint64_t>(target.append(record, framed) - target.data_));
    at += framed;
  }
  ++bits_;
  prefix_ <<= 1;
  other.bits_ = bits_;
  other.prefix_ = prefix_ | 1;
}

void AggregatePage::write_chunk_header() {
  ChunkHeader chunk;
  chunk.bytes = used_ - kPageOverheadBytes;
  chunk.records = records_;
  std::memcpy(data_ + sizeof(PageHeader), &chunk, sizeof(chunk));
}

std::shared_ptr<WritableBlob> AggregatePage::take() {
  write_chunk_header();
  return std::move(blob_);
}

void AggregatePage::move_to(std::byte* to) {
  write_chunk_header();
  std::memcpy(to, data_, used_);
  used_ = kPageOverheadBytes;
  records_ = 0;
  clear_slots(std::uint64_t{mask_} + 1);
}

}  // namespace entrepot
