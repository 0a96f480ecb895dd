#include "client/aggregate_merger.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kFirstMergeSlots = 1024;
constexpr std::uint64_t kHashBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kMaxMergedRows = 0xffff'fffe;

}  // namespace

Status AggregateMerger::add(std::span<const std::byte> page) {
  ASSIGN_OR_RETURN(const PageView view, open_page(page));
  const std::uint64_t bits = view.header.hash_bits, prefix = view.header.hash_prefix;
  if (bits > 32 || prefix >> bits != 0) return damaged_page("the prefix of its hashes is impossible");
  const std::pair range(prefix << (32 - bits), (prefix + 1) << (32 - bits));
  const bool is_new = std::ranges::none_of(
      ranges_, [&](const auto& other) { return range.first < other.second && other.first < range.second; });
  ranges_.push_back(range);
  const std::uint64_t fixed = kHashBytes + layout_.bytes();
  bool is_damaged = false, is_full = false;
  RETURN_IF_ERROR(for_each_record(page, [&](std::span<const std::byte> record) {
    is_damaged = is_damaged || record.size() < fixed;
    is_full = is_full || rows() == kMaxMergedRows;
    if (is_damaged || is_full) return;
    if (is_new) {
      append(record);
    } else {
      merge(record);
    }
  }));
  if (is_full) return {Code::kInvalidArgument, "a partition has more than 2^32 keys: use more partitions"};
  return is_damaged ? damaged_page("a record is too short for its aggregates") : Status::ok();
}

void AggregateMerger::merge(std::span<const std::byte> record) {
  if (indexed_ != rows() || (rows() + 1) * 3 > slots_.size() * 2) index_all();
  const auto hash = load_as<std::uint64_t>(record.data());
  const std::span<const std::byte> wanted = record.subspan(kHashBytes + layout_.bytes());
  const std::uint64_t mask = slots_.size() - 1;
  std::uint64_t i = RowKey{{}, hash}.tag() & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    const std::uint64_t row = slots_[i] - 1;
    if (hashes_[row] != hash) continue;
    const std::span<const std::byte> existing = key(row);
    if (existing.size() == wanted.size() &&
        (wanted.empty() || std::memcmp(existing.data(), wanted.data(), wanted.size()) == 0)) {
      return layout_.merge(states_.data() + row * layout_.bytes(), record.data() + kHashBytes);
    }
  }
  append(record);
  slots_[i] = static_cast<std::uint32_t>(rows());
  indexed_ = rows();
}

void AggregateMerger::append(std::span<const std::byte> record) {
  hashes_.push_back(load_as<std::uint64_t>(record.data()));
  const auto states = record.subspan(kHashBytes, layout_.bytes());
  states_.insert(states_.end(), states.begin(), states.end());
  const auto bytes = record.subspan(kHashBytes + layout_.bytes());
  keys_.insert(keys_.end(), bytes.begin(), bytes.end());
  ends_.push_back(keys_.size());
}

void AggregateMerger::index_all() {
  if ((rows() + 1) * 3 > slots_.size() * 2) {
    std::uint64_t count = std::max<std::uint64_t>(kFirstMergeSlots, slots_.size());
    while ((rows() + 1) * 2 > count)
      count *= 2;
    slots_.assign(count, 0);
    indexed_ = 0;
  }
  const std::uint64_t mask = slots_.size() - 1;
  for (; indexed_ < rows(); ++indexed_) {
    std::uint64_t i = RowKey{{}, hashes_[indexed_]}.tag() & mask;
    while (slots_[i] != 0)
      i = (i + 1) & mask;
    slots_[i] = static_cast<std::uint32_t>(indexed_ + 1);
  }
}

Result<std::vector<DecodedColumn>> AggregateMerger::keys() const {
  std::vector<DecodedColumn> columns(widths_.size());
  for (std::size_t i = 0; i < widths_.size(); ++i)
    columns[i].width = widths_[i];
  for (std::uint64_t row = 0; row < rows(); ++row)
    RETURN_IF_ERROR(decode_key(key(row), RowKey{{}, hashes_[row]}.is_null(), columns));
  return columns;
}

Result<AggregateResults> AggregateMerger::results(std::size_t aggregate) const {
  const AggregateKind kind = layout_.kinds()[aggregate];
  AggregateResults made;
  made.data.resize(rows() * 8);
  made.valid.assign(rows(), '\1');
  for (std::uint64_t row = 0; row < rows(); ++row) {
    const std::byte* const state = states_.data() + row * layout_.bytes() + layout_.offset(aggregate);
    char* const to = made.data.data() + row * 8;
    switch (kind) {
      case AggregateKind::kCount:
      case AggregateKind::kSumFloat:
        std::memcpy(to, state, 8);
        break;
      case AggregateKind::kSumSigned:
      case AggregateKind::kSumUnsigned: {
        const auto sum = load_as<Int128>(state);
        const bool fits = kind == AggregateKind::kSumSigned ? sum >= Int128{INT64_MIN} && sum <= Int128{INT64_MAX}
                                                            : sum >= 0 && sum <= Int128{UINT64_MAX};
        if (!fits) return Status(Code::kInvalidArgument, "a sum exceeds 64 bits");
        std::memcpy(to, &sum, 8);  // little-endian: the lower half
        break;
      }
      default:
        if (load_as<std::uint64_t>(state) == 0) {
          made.valid[row] = '\0';
          ++made.nulls;
        } else {
          std::memcpy(to, state + 8, 8);
        }
    }
  }
  return made;
}

}  // namespace entrepot
