#include "client/join_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxJoinRows = 0xffff'fffe;
constexpr std::uint64_t kMinBuckets = 16;
constexpr std::size_t kLookedUpAtOnce = 32;  // their buckets are brought into the cache together

Status damaged_index(std::string_view what) {
  return {Code::kCorruptData, concat("this is no join index, or a damaged one: ", what)};
}

// Where the parts of an index are.
struct IndexParts {
  std::uint64_t offsets = sizeof(JoinIndexHeader);
  std::uint64_t heads = 0;
  std::uint64_t next = 0;
  std::uint64_t hashes = 0;
  std::uint64_t keys = 0;
  std::uint64_t end = 0;

  explicit IndexParts(const JoinIndexHeader& header) {
    heads = offsets + (header.width != 0 ? 0 : (header.rows + 1) * 8);
    next = heads + header.buckets * 4;
    hashes = next + header.rows * 4;
    keys = hashes + header.rows * 4;
    end = keys + header.key_bytes;
  }
};

template <class T, class Bytes>
auto* part_of(Bytes* bytes, std::uint64_t at) {
  using Type = std::conditional_t<std::is_const_v<Bytes>, const T, T>;
  return reinterpret_cast<Type*>(bytes + at);
}

Result<JoinIndexHeader> plan_index(RowKeys& keys) {
  if (keys.rows() > kMaxJoinRows) {
    return Status(Code::kInvalidArgument, concat("a join map can have ", kMaxJoinRows, " rows, but the table has ",
                                                 keys.rows(), ": divide it"));
  }
  JoinIndexHeader header;
  header.magic = kJoinIndexMagic;
  header.version = kJoinIndexVersion;
  header.rows = keys.rows();
  header.buckets = std::bit_ceil(std::max(kMinBuckets, header.rows + header.rows / 2));
  header.width = keys.fixed_width();
  if (header.width != 0) {
    header.key_bytes = header.rows * header.width;
  } else {
    for (std::uint64_t row = 0; row < header.rows; ++row)
      if (!keys.has_null(row)) header.key_bytes += keys[row].bytes.size();
  }
  return header;
}

// An index that is read, whose every number was written by another process.
class JoinIndexReader {
 public:
  static Result<JoinIndexReader> open(std::span<const std::byte> index) {
    JoinIndexReader reader;
    if (index.size() < sizeof(JoinIndexHeader)) return damaged_index(concat("it has ", index.size(), " bytes"));
    std::memcpy(&reader.header_, index.data(), sizeof(JoinIndexHeader));
    const JoinIndexHeader& header = reader.header_;
    if (header.magic != kJoinIndexMagic) return damaged_index("it does not begin with EJM1");
    if (header.version != kJoinIndexVersion) {
      return Status(Code::kVersionMismatch,
                    concat("this join index has version ", header.version, ", and this program reads version ",
                           kJoinIndexVersion, ": use the version of entrepot that wrote it"));
    }
    if (header.rows > kMaxJoinRows || !std::has_single_bit(header.buckets) || header.buckets > (kMaxJoinRows << 2) ||
        header.key_bytes > index.size() || (header.width != 0 && header.key_bytes / header.width != header.rows)) {
      return damaged_index("its numbers of rows, buckets and bytes are impossible");
    }
    const IndexParts parts(header);
    if (parts.end > index.size()) return damaged_index("it is incomplete");
    reader.offsets_ = part_of<std::uint64_t>(index.data(), parts.offsets);
    reader.heads_ = part_of<std::uint32_t>(index.data(), parts.heads);
    reader.next_ = part_of<std::uint32_t>(index.data(), parts.next);
    reader.hashes_ = part_of<std::uint32_t>(index.data(), parts.hashes);
    reader.keys_ = index.subspan(parts.keys, header.key_bytes);
    return reader;
  }
  void prefetch(const RowKey& key) const { __builtin_prefetch(heads_ + bucket(key)); }
  // Calls `visit` with each row that has the key until that returns false.
  template <class Visit>
  Status for_each(const RowKey& key, Visit&& visit) const {
    std::uint64_t before = 0;
    for (std::uint64_t link = heads_[bucket(key)]; link != 0; link = next_[link - 1]) {
      if (link > header_.rows || link <= before) return damaged_index("a chain leaves the table, or does not end");
      before = link;
      if (hashes_[link - 1] != static_cast<std::uint32_t>(key.hash >> 32)) continue;
      ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, key_of(link - 1));
      if (bytes.size() == key.bytes.size() &&
          (bytes.empty() || std::memcmp(bytes.data(), key.bytes.data(), bytes.size()) == 0) && !visit(link - 1)) {
        break;
      }
    }
    return Status::ok();
  }

 private:
  [[nodiscard]] std::uint64_t bucket(const RowKey& key) const { return key.tag() & (header_.buckets - 1); }
  [[nodiscard]] Result<std::span<const std::byte>> key_of(std::uint64_t row) const {
    if (header_.width != 0) return keys_.subspan(row * header_.width, header_.width);
    const std::uint64_t begin = offsets_[row], end = offsets_[row + 1];
    if (begin > end || end > keys_.size()) return damaged_index("a key exceeds it");
    return keys_.subspan(begin, end - begin);
  }
  JoinIndexHeader header_;
  const std::uint64_t* offsets_ = nullptr;
  const std::uint32_t* heads_ = nullptr;
  const std::uint32_t* next_ = nullptr;
  const std::uint32_t* hashes_ = nullptr;
  std::span<const std::byte> keys_;
};

// Calls `visit` with each row that is looked up, its number, and its key, which is not null.
template <class Visit>
Status look_up_keys(const JoinIndexReader& reader, RowKeys& keys, Visit&& visit) {
  std::array<RowKey, kLookedUpAtOnce> ahead;
  for (std::uint64_t first = 0; first < keys.rows(); first += kLookedUpAtOnce) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kLookedUpAtOnce, keys.rows() - first));
    if (keys.is_single()) {
      for (std::size_t i = 0; i < count; ++i) {
        ahead[i] = keys[first + i];
        reader.prefetch(ahead[i]);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (keys.has_null(first + i)) continue;
      RETURN_IF_ERROR(visit(first + i, keys.is_single() ? ahead[i] : keys[first + i]));
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::uint64_t> join_index_bytes(RowKeys& keys) {
  ASSIGN_OR_RETURN(const JoinIndexHeader header, plan_index(keys));
  return IndexParts(header).end;
}

Status build_join_index(std::span<std::byte> index, RowKeys& keys, std::uint16_t columns) {
  ASSIGN_OR_RETURN(JoinIndexHeader header, plan_index(keys));
  header.columns = columns;
  const IndexParts parts(header);
  if (index.size() != parts.end) {
    return {Code::kInvalidArgument, concat("the index needs ", parts.end, " bytes, but got ", index.size())};
  }
  std::memcpy(index.data(), &header, sizeof(header));
  auto* const offsets = part_of<std::uint64_t>(index.data(), parts.offsets);
  auto* const heads = part_of<std::uint32_t>(index.data(), parts.heads);
  auto* const next = part_of<std::uint32_t>(index.data(), parts.next);
  auto* const hashes = part_of<std::uint32_t>(index.data(), parts.hashes);
  std::memset(heads, 0, header.buckets * sizeof(*heads));
  std::uint64_t used = 0;
  std::vector<std::uint32_t> buckets(header.rows);
  for (std::uint64_t row = 0; row < header.rows; ++row) {
    if (header.width == 0) offsets[row] = used;
    hashes[row] = 0;
    const bool is_null = keys.has_null(row);
    std::uint64_t length = header.width;
    if (!is_null) {
      const RowKey key = keys[row];
      buckets[row] = static_cast<std::uint32_t>(key.tag() & (header.buckets - 1));
      hashes[row] = static_cast<std::uint32_t>(key.hash >> 32);
      length = key.bytes.size();
      if (length != 0) std::memcpy(index.data() + parts.keys + used, key.bytes.data(), length);
    } else if (length != 0) {
      std::memset(index.data() + parts.keys + used, 0, length);
    }
    used += length;
  }
  if (header.width == 0) offsets[header.rows] = used;
  for (std::uint64_t row = header.rows; row-- > 0;) {  // backwards, so that chains ascend
    next[row] = 0;
    if (keys.has_null(row)) continue;
    next[row] = heads[buckets[row]];
    heads[buckets[row]] = static_cast<std::uint32_t>(row + 1);
  }
  return Status::ok();
}

Result<JoinMatches> join_matches(std::span<const std::byte> index, RowKeys& keys) {
  ASSIGN_OR_RETURN(const JoinIndexReader reader, JoinIndexReader::open(index));
  JoinMatches matches;
  RETURN_IF_ERROR(look_up_keys(reader, keys, [&](std::uint64_t asked, const RowKey& key) {
    return reader.for_each(key, [&](std::uint64_t row) {
      matches.asked.push_back(static_cast<std::int64_t>(asked));
      matches.rows.push_back(static_cast<std::int64_t>(row));
      return true;
    });
  }));
  return matches;
}

Result<std::vector<std::int64_t>> join_first(std::span<const std::byte> index, RowKeys& keys) {
  ASSIGN_OR_RETURN(const JoinIndexReader reader, JoinIndexReader::open(index));
  std::vector<std::int64_t> rows(keys.rows(), -1);
  RETURN_IF_ERROR(look_up_keys(reader, keys, [&](std::uint64_t asked, const RowKey& key) {
    return reader.for_each(key, [&](std::uint64_t row) {
      rows[asked] = static_cast<std::int64_t>(row);
      return false;
    });
  }));
  return rows;
}

}  // namespace entrepot
