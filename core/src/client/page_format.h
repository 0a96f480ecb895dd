// Pages of records: the bytes of the objects that shuffles and other services write. See docs/formats/pages.md.
//
//   page   = PageHeader, chunk, chunk, ...      one partition's records; the only buffer of one object
//   chunk  = ChunkHeader, records                a part of it that one thread filled; begins at a multiple of 64 bytes.
//                                                Without records, it is a gap
//
// Numbers are little-endian. What is read was written by another process, so nothing in it is believed unchecked.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/align.h"
#include "base/id.h"
#include "base/status.h"

namespace entrepot {

static_assert(std::endian::native == std::endian::little);

// How records follow each other in a chunk.
enum class Framing : std::uint8_t {
  kFixed = 0,    // all of one length, nothing between them
  kCompact = 1,  // each after its length, 4 bytes
  kAligned = 2,  // each after its length, 8 bytes; and padded to a multiple of 8, so that it begins at one
};

struct PageHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint8_t framing = 0;
  std::uint8_t unused = 0;
  std::uint32_t partition = 0;
  std::uint32_t record_bytes = 0;  // with Framing::kFixed
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  // of the page, this header included
  // Of a page of partial aggregates: only keys whose hashes begin so are in it. 0 bits: any.
  std::uint32_t hash_prefix = 0;
  std::uint32_t hash_bits = 0;
  std::uint8_t reserved[24] = {};
};
struct ChunkHeader {
  std::uint64_t bytes = 0;  // of its records; what follows, up to the next multiple of 64, is undefined
  std::uint64_t records = 0;
  std::uint8_t reserved[48] = {};
};
static_assert(sizeof(PageHeader) == 64 && sizeof(ChunkHeader) == 64);

inline constexpr std::uint32_t kPageMagic = 0x31475045;  // "EPG1"
inline constexpr std::uint16_t kPageVersion = 1;
inline constexpr std::uint64_t kChunkAlign = 64;
inline constexpr std::uint64_t kPageOverheadBytes = sizeof(PageHeader) + sizeof(ChunkHeader);
inline constexpr std::uint64_t kMaxCompactBytes = 0xffff'ffff;

// Metadata of the objects that are pages: that of an entrepot.Blob, so that any program can get one.
inline constexpr std::string_view kPageMetadata = "entrepot.page/1";
[[nodiscard]] std::string page_tree();

// IDs of the pages of one writer: 12 random bytes, and the page's number.
using PagePrefix = std::array<std::uint8_t, 12>;
[[nodiscard]] inline IdBytes page_id(const PagePrefix& prefix, std::uint64_t number) {
  IdBytes id{};
  std::memcpy(id.data(), prefix.data(), prefix.size());
  std::memcpy(id.data() + prefix.size(), &number, sizeof(number));
  return id;
}

// Bytes that a record takes in a chunk.
[[nodiscard]] inline std::uint64_t framed_bytes(Framing framing, std::uint64_t length) {
  switch (framing) {
    case Framing::kFixed:
      return length;
    case Framing::kCompact:
      return length + sizeof(std::uint32_t);
    case Framing::kAligned:
      return sizeof(std::uint64_t) + round_up(length, 8);
  }
  return length;
}

// Writes a record, for which the caller has made sure that there is room.
inline std::byte* write_record(Framing framing, std::byte* to, const void* data, std::uint64_t length) {
  std::uint64_t padded = length;
  if (framing == Framing::kCompact) {
    const auto short_length = static_cast<std::uint32_t>(length);
    std::memcpy(to, &short_length, sizeof(short_length));
    to += sizeof(short_length);
  } else if (framing == Framing::kAligned) {
    std::memcpy(to, &length, sizeof(length));
    to += sizeof(length);
    padded = round_up(length, 8);
    std::memset(to + length, 0, padded - length);  // sealed bytes must not depend on what was there before
  }
  if (length != 0) std::memcpy(to, data, length);
  return to + padded;
}

struct ChunkView {
  std::span<const std::byte> bytes;
  std::uint64_t records = 0;
};
struct PageView {
  PageHeader header;
  std::span<const std::byte> chunks;  // what follows the header
};

// kCorruptData: it is no page, or another version's.
[[nodiscard]] Result<PageView> open_page(std::span<const std::byte> page);
// Takes the next chunk off `chunks`, which are not empty.
[[nodiscard]] Result<ChunkView> next_chunk(std::span<const std::byte>& chunks);

// Calls `visit` with each record of a chunk, a span. kCorruptData, after the records before: one exceeds the chunk, or
// there are not as many as the chunk says.
template <class Visit>
[[nodiscard]] Status for_each_record(const PageHeader& header, const ChunkView& chunk, Visit&& visit);
// The same for all records of a page.
template <class Visit>
[[nodiscard]] Status for_each_record(std::span<const std::byte> page, Visit&& visit) {
  ASSIGN_OR_RETURN(PageView view, open_page(page));
  while (!view.chunks.empty()) {
    ASSIGN_OR_RETURN(const ChunkView chunk, next_chunk(view.chunks));
    RETURN_IF_ERROR(for_each_record(view.header, chunk, visit));
  }
  return Status::ok();
}

[[nodiscard]] Status damaged_page(std::string_view what);

namespace internal {

// Walks records of which each follows its length, of type Length.
template <class Length, std::uint64_t kAlign, class Visit>
[[nodiscard]] Status walk_records(const ChunkView& chunk, Visit&& visit) {
  const std::byte* at = chunk.bytes.data();
  const std::byte* const end = at + chunk.bytes.size();
  for (std::uint64_t i = 0; i < chunk.records; ++i) {
    Length length = 0;
    if (static_cast<std::uint64_t>(end - at) < sizeof(length)) return damaged_page("it has fewer records than it says");
    std::memcpy(&length, at, sizeof(length));
    at += sizeof(length);
    const auto left = static_cast<std::uint64_t>(end - at);
    if (length > left || round_up(length, kAlign) > left) return damaged_page("a record exceeds its chunk");
    visit(std::span<const std::byte>(at, length));
    at += round_up(length, kAlign);
  }
  return at == end ? Status::ok() : damaged_page("it has more bytes than its records");
}

}  // namespace internal

template <class Visit>
Status for_each_record(const PageHeader& header, const ChunkView& chunk, Visit&& visit) {
  if (chunk.records == 0) return Status::ok();  // a gap, whose bytes are undefined
  switch (static_cast<Framing>(header.framing)) {
    case Framing::kCompact:
      return internal::walk_records<std::uint32_t, 1>(chunk, visit);
    case Framing::kAligned:
      return internal::walk_records<std::uint64_t, 8>(chunk, visit);
    case Framing::kFixed:
      break;
  }
  const std::uint64_t length = header.record_bytes;
  if (length == 0 || chunk.bytes.size() % length != 0 || chunk.bytes.size() / length != chunk.records) {
    return damaged_page("its bytes are not those of its records");
  }
  for (std::uint64_t at = 0; at < chunk.bytes.size(); at += length)
    visit(chunk.bytes.subspan(at, length));
  return Status::ok();
}

}  // namespace entrepot
