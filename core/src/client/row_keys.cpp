#include "client/row_keys.h"

#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kNullKeyHash = 0x9e37'79b9'7f4a'7c15ULL;

std::uint64_t hash_of_key(std::span<const std::byte> key) {
  return hash_bytes({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()});
}

void append_bytes(std::vector<std::byte>& to, const void* from, std::size_t length) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + length);
}

}  // namespace

Result<RowKeys> RowKeys::create(std::vector<KeyColumn> columns) {
  if (columns.empty()) return Status(Code::kInvalidArgument, "keys need at least one column");
  for (const KeyColumn& column : columns) {
    if (column.rows != columns.front().rows) {
      return Status(Code::kInvalidArgument,
                    concat("key columns have ", columns.front().rows, " and ", column.rows, " rows"));
    }
  }
  return RowKeys(std::move(columns));
}

RowKey RowKeys::operator[](std::uint64_t row) {
  RowKey key;
  if (is_single()) {
    const KeyColumn& column = columns_.front();
    if (column.is_null(row)) {
      key.hash = kNullKeyHash | 1;
      return key;
    }
    key.bytes = column.value(row);
    if (column.offset_bytes == 0 && column.width <= sizeof(key.hash)) {
      std::memcpy(&key.hash, key.bytes.data(), column.width);
      key.hash = mix64(key.hash + 0x9e37'79b9'7f4a'7c15ULL) & ~std::uint64_t{1};
      return key;
    }
  } else {
    joined_.clear();
    for (const KeyColumn& column : columns_) {
      const bool is_null = column.is_null(row);
      joined_.push_back(is_null ? std::byte{0} : std::byte{1});
      if (is_null) continue;
      const std::span<const std::byte> value = column.value(row);
      if (column.offset_bytes != 0) {
        const auto length = static_cast<std::uint32_t>(value.size());
        append_bytes(joined_, &length, sizeof(length));
      }
      append_bytes(joined_, value.data(), value.size());
    }
    key.bytes = joined_;
  }
  key.hash = hash_of_key(key.bytes) & ~std::uint64_t{1};
  return key;
}

bool RowKeys::has_null(std::uint64_t row) const {
  for (const KeyColumn& column : columns_)
    if (column.is_null(row)) return true;
  return false;
}

void DecodedColumn::append(std::span<const std::byte> value, bool is_valid) {
  if (is_valid) {
    data.append(reinterpret_cast<const char*>(value.data()), value.size());
  } else {
    data.append(width, '\0');
    ++nulls;
  }
  if (width == 0) offsets.push_back(static_cast<std::int64_t>(data.size()));
  valid.push_back(is_valid ? '\1' : '\0');
}

Status decode_key(std::span<const std::byte> key, bool is_null, std::span<DecodedColumn> columns) {
  const Status damaged(Code::kCorruptData,
                       "a page of partial aggregates is damaged: a key has not the columns' lengths");
  if (columns.size() == 1) {
    DecodedColumn& column = columns.front();
    if (!is_null && column.width != 0 && key.size() != column.width) return damaged;
    column.append(key, !is_null);
    return Status::ok();
  }
  for (DecodedColumn& column : columns) {
    if (key.empty()) return damaged;
    const bool is_valid = key.front() != std::byte{0};
    key = key.subspan(1);
    if (!is_valid) {
      column.append({}, false);
      continue;
    }
    std::uint64_t length = column.width;
    if (length == 0) {
      std::uint32_t stored = 0;
      if (key.size() < sizeof(stored)) return damaged;
      std::memcpy(&stored, key.data(), sizeof(stored));
      key = key.subspan(sizeof(stored));
      length = stored;
    }
    if (key.size() < length) return damaged;
    column.append(key.first(length), true);
    key = key.subspan(length);
  }
  return key.empty() ? Status::ok() : damaged;
}

}  // namespace entrepot
