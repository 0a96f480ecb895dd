// AggregateMerger: the result of one partition of a hash aggregation, out of the pages of partial results of all writers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/aggregate_page.h"
#include "client/row_keys.h"

namespace entrepot {

// The results of one aggregate: 8 bytes each.
struct AggregateResults {
  std::string data;
  std::string valid;  // a byte for each row
  std::uint64_t nulls = 0;
};

class AggregateMerger {
 public:
  // `widths`: of the key columns; 0: text or bytes.
  AggregateMerger(std::vector<std::uint32_t> widths, AggregateLayout layout)
      : widths_(std::move(widths)), layout_(std::move(layout)) {}

  // Adds a page, which may go away afterwards. Keys are looked up only if an earlier page may have them, going by the
  // prefixes of the hashes. kCorruptData.
  [[nodiscard]] Status add(std::span<const std::byte> page);
  [[nodiscard]] std::uint64_t rows() const { return hashes_.size(); }
  [[nodiscard]] Result<std::vector<DecodedColumn>> keys() const;
  // kInvalidArgument: a sum of integers exceeds 64 bits; `aggregate` is its number.
  [[nodiscard]] Result<AggregateResults> results(std::size_t aggregate) const;

 private:
  void merge(std::span<const std::byte> record);
  void index_all();
  void append(std::span<const std::byte> record);
  [[nodiscard]] std::span<const std::byte> key(std::uint64_t row) const {
    return std::span(keys_).subspan(ends_[row], ends_[row + 1] - ends_[row]);
  }

  const std::vector<std::uint32_t> widths_;
  const AggregateLayout layout_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::byte> keys_;
  std::vector<std::uint64_t> ends_ = {0};
  std::vector<std::byte> states_;
  std::vector<std::uint32_t> slots_;  // a row, plus 1; 0: empty; only of the rows that are indexed
  std::uint64_t indexed_ = 0;
  // Of the tags of the pages so far: first, and behind the last.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace entrepot
