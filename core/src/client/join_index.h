// A join index: a hash table over the keys of a table's rows, in the bytes of one object, which all processes of a host
// read where they lie. See docs/formats/join_maps.md.
//
//   header | offsets of the keys, if they have lengths of their own | heads | next | hashes | keys
//
// The rows of a bucket are a chain in ascending order. Rows with a null in their key are in no chain: they match nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "client/row_keys.h"

namespace entrepot {

struct JoinIndexHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t columns = 0;
  std::uint64_t rows = 0;
  std::uint64_t buckets = 0;    // a power of two
  std::uint64_t key_bytes = 0;  // of all keys
  std::uint64_t width = 0;      // of each key; 0: they have offsets
  std::uint8_t reserved[24] = {};
};
static_assert(sizeof(JoinIndexHeader) == 64);

inline constexpr std::uint32_t kJoinIndexMagic = 0x314d4a45;  // "EJM1"
inline constexpr std::uint16_t kJoinIndexVersion = 1;

// kInvalidArgument: too many rows.
[[nodiscard]] Result<std::uint64_t> join_index_bytes(RowKeys& keys);
// Fills `index`, which has that many bytes.
[[nodiscard]] Status build_join_index(std::span<std::byte> index, RowKeys& keys, std::uint16_t columns);

struct JoinMatches {
  std::vector<std::int64_t> asked;  // rows of the keys that were looked up, ascending
  std::vector<std::int64_t> rows;   // of the table
};
// Every pair of a key and a row of the table that has it. kCorruptData: it is no index.
[[nodiscard]] Result<JoinMatches> join_matches(std::span<const std::byte> index, RowKeys& keys);
// For each key the first row that has it; -1: none.
[[nodiscard]] Result<std::vector<std::int64_t>> join_first(std::span<const std::byte> index, RowKeys& keys);

}  // namespace entrepot
