#include "daemon/spill_extent.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/crc32c.h"
#include "base/text.h"

namespace entrepot {

namespace {

// All little-endian; the CRCs of the blocks follow at once, then, of a packed copy, the stored lengths of the blocks.
struct Fixed {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_crc;  // over all header pages, with this field 0
  InstanceId instance;
  std::uint32_t blob;
  std::uint32_t generation;
  std::uint64_t length;
  std::uint64_t stored_length;  // what lies on disk behind the header, without padding
  std::uint32_t block_bytes;
  std::uint32_t codec;
};
static_assert(sizeof(Fixed) == 64);
static_assert(std::has_unique_object_representations_v<Fixed>);

constexpr std::size_t kCrcOffset = 12;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  constexpr std::uint32_t kZero = 0;
  return Crc32c()
      .add_bytes(bytes.data(), kCrcOffset)
      .add(kZero)
      .add_bytes(bytes.data() + kCrcOffset + sizeof(kZero), bytes.size() - kCrcOffset - sizeof(kZero))
      .value();
}

std::uint16_t check_bits(std::uint64_t place, const BlobKey& blob) {
  const std::uint32_t crc = Crc32c().add(place).add(blob.blob).add(blob.generation).value();
  return static_cast<std::uint16_t>(crc ^ (crc >> 16));
}

std::uint64_t stored_bytes(const SpillHeader& header) {
  if (header.codec == SpillCodec::kNone) return header.length;
  return std::accumulate(header.block_bytes.begin(), header.block_bytes.end(), std::uint64_t{0});
}

Status damaged(std::string_view what) {
  return Status(Code::kCorruptData, concat("the copy's header is damaged: ", what));
}

}  // namespace

std::uint64_t header_bytes(std::uint64_t length) { return round_up_page(sizeof(Fixed) + 8 * block_count(length)); }

std::uint64_t extent_bytes(std::uint64_t length) { return header_bytes(length) + round_up_page(length); }

std::uint64_t packed_extent_bytes(const SpillHeader& header) {
  constexpr std::size_t kBlocks = kSpillPieceBytes / kSpillBlockBytes;
  std::uint64_t bytes = header_bytes(header.length);
  for (std::size_t first = 0; first < header.block_bytes.size(); first += kBlocks) {
    std::uint64_t piece = 0;
    for (std::size_t block = first; block < std::min(first + kBlocks, header.block_bytes.size()); ++block)
      piece += header.block_bytes[block];
    bytes += round_up_page(piece);
  }
  return bytes;
}

void encode_header(const SpillHeader& header, std::span<std::byte> out) {
  Fixed fixed{kSpillMagic,
              kSpillVersion,
              0,
              header.identity.instance,
              header.identity.key.blob,
              header.identity.key.generation,
              header.length,
              stored_bytes(header),
              static_cast<std::uint32_t>(kSpillBlockBytes),
              static_cast<std::uint32_t>(header.codec)};
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), &fixed, sizeof(fixed));
  const std::size_t list = 4 * header.block_crcs.size();
  std::memcpy(out.data() + sizeof(fixed), header.block_crcs.data(), list);
  if (header.codec != SpillCodec::kNone) {
    std::memcpy(out.data() + sizeof(fixed) + list, header.block_bytes.data(), list);
  }
  fixed.header_crc = crc_of(out);
  std::memcpy(out.data(), &fixed, sizeof(fixed));
}

Result<SpillHeader> decode_header(std::span<const std::byte> bytes, std::uint64_t length) {
  Fixed fixed{};
  if (bytes.size() != header_bytes(length)) return Status(Code::kInternal, "a header of another size was read");
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  if (fixed.magic != kSpillMagic) return damaged("it does not begin with ENSPILL1");
  if (fixed.version != kSpillVersion) {
    return Status(Code::kVersionMismatch, concat("the copy was written in format ", fixed.version,
                                                 "; this version reads format ", kSpillVersion));
  }
  if (fixed.header_crc != crc_of(bytes)) return damaged("its checksum does not fit");
  if (fixed.length != length) {
    return damaged(concat("it is of a blob of ", fixed.length, " bytes, not of ", length));
  }
  if (fixed.block_bytes != kSpillBlockBytes || fixed.codec > static_cast<std::uint32_t>(SpillCodec::kZstd)) {
    return damaged(concat("blocks of ", fixed.block_bytes, " bytes in codec ", fixed.codec, " are unknown"));
  }
  SpillHeader header;
  header.identity = {fixed.instance, {fixed.blob, fixed.generation}};
  header.length = length;
  header.codec = static_cast<SpillCodec>(fixed.codec);
  header.block_crcs.resize(block_count(length));
  const std::size_t list = 4 * header.block_crcs.size();
  std::memcpy(header.block_crcs.data(), bytes.data() + sizeof(fixed), list);
  if (header.codec != SpillCodec::kNone) {
    header.block_bytes.resize(header.block_crcs.size());
    std::memcpy(header.block_bytes.data(), bytes.data() + sizeof(fixed) + list, list);
    for (std::size_t block = 0; block < header.block_bytes.size(); ++block) {
      const std::uint64_t whole = std::min(kSpillBlockBytes, length - block * kSpillBlockBytes);
      if (header.block_bytes[block] == 0 || header.block_bytes[block] > whole) {
        return damaged(concat("block ", block, " of ", whole, " bytes claims ", header.block_bytes[block], " on disk"));
      }
    }
  }
  if (fixed.stored_length != stored_bytes(header)) {
    return damaged(concat("it claims ", fixed.stored_length, " bytes on disk, its blocks have ", stored_bytes(header)));
  }
  return header;
}

SpillLocation pack_location(const SpillPlace& place, const BlobKey& blob) {
  const std::uint64_t where = (place.offset / kSpillPage) | (static_cast<std::uint64_t>(place.file) << 32);
  return where | (static_cast<std::uint64_t>(check_bits(where, blob)) << 48);
}

SpillPlace place_in(SpillLocation location) {
  return {static_cast<std::uint16_t>(location >> 32), (location & UINT32_MAX) * kSpillPage};
}

Result<SpillPlace> unpack_location(SpillLocation location, const BlobKey& blob) {
  const std::uint64_t where = location & ((1ULL << 48) - 1);
  const SpillPlace place = place_in(location);
  if (place.file == 0 || location >> 48 != check_bits(where, blob)) {
    return Status(Code::kObjectLost, concat("blob ", blob.blob, " (generation ", blob.generation,
                                            ") has no copy: the word for it, ", location, ", is of another blob"));
  }
  return place;
}

}  // namespace entrepot
