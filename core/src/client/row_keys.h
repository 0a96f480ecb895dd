// Keys of rows, as columns have them, for hash tables in pages and in join indexes.
//
// The key of a row with one column is the value's bytes, which are not copied; it may be null. Of several columns, each
// value is preceded by a byte that says whether there is one (1) or it is null (0); values without a fixed width also by
// their length, 4 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace entrepot {

// A column: values of one width, or Arrow's offsets and data. Whoever makes one has checked that values lie in the data.
struct KeyColumn {
  const std::byte* data = nullptr;
  std::uint64_t width = 0;              // of each value; or:
  const void* offsets = nullptr;        // one more than values
  unsigned offset_bytes = 0;            // 4 or 8; 0: values have a width
  const std::uint8_t* valid = nullptr;  // a byte for each row; null: all are valid
  std::uint64_t rows = 0;

  [[nodiscard]] bool is_null(std::uint64_t row) const { return valid != nullptr && valid[row] == 0; }
  [[nodiscard]] std::span<const std::byte> value(std::uint64_t row) const {
    if (offset_bytes == 0) return {data + row * width, width};
    if (offset_bytes == 4) return slice(static_cast<const std::int32_t*>(offsets), row);
    return slice(static_cast<const std::int64_t*>(offsets), row);
  }

 private:
  template <class Offset>
  [[nodiscard]] std::span<const std::byte> slice(const Offset* at, std::uint64_t row) const {
    return {data + at[row], static_cast<std::size_t>(at[row + 1] - at[row])};
  }
};

struct RowKey {
  std::span<const std::byte> bytes;
  std::uint64_t hash = 0;  // its lowest bit says whether the key is null
  [[nodiscard]] bool is_null() const { return (hash & 1) != 0; }
  // Tables use the lower bits as an index, and divide themselves by the upper ones; partitions use other bits.
  [[nodiscard]] std::uint32_t tag() const { return static_cast<std::uint32_t>(hash >> 1); }
};

// Reads the keys of rows. What a call returns is valid until the next one, unless there is only one column.
class RowKeys {
 public:
  // kInvalidArgument: no columns, or of different lengths.
  [[nodiscard]] static Result<RowKeys> create(std::vector<KeyColumn> columns);
  [[nodiscard]] std::uint64_t rows() const { return columns_.front().rows; }
  [[nodiscard]] bool is_single() const { return columns_.size() == 1; }
  // Of all keys; 0: they have lengths of their own.
  [[nodiscard]] std::uint64_t fixed_width() const {
    return is_single() && columns_.front().offset_bytes == 0 ? columns_.front().width : 0;
  }
  [[nodiscard]] RowKey operator[](std::uint64_t row);
  // Whether any of the row's values is null.
  [[nodiscard]] bool has_null(std::uint64_t row) const;

 private:
  explicit RowKeys(std::vector<KeyColumn> columns) : columns_(std::move(columns)) {}
  std::vector<KeyColumn> columns_;
  std::vector<std::byte> joined_;  // the latest key of several columns
};

// One column of keys that are taken apart again.
struct DecodedColumn {
  std::uint64_t width = 0;  // 0: it has offsets
  std::string data;
  std::vector<std::int64_t> offsets = {0};
  std::string valid;  // a byte for each row
  std::uint64_t nulls = 0;

  void append(std::span<const std::byte> value, bool is_valid);
};
// Appends a key to the columns. kCorruptData: it is none of theirs.
[[nodiscard]] Status decode_key(std::span<const std::byte> key, bool is_null, std::span<DecodedColumn> columns);

}  // namespace entrepot
