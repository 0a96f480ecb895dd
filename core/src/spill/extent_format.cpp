#include "spill/extent_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/crc32c.h"
#include "base/text.h"

namespace entrepot {

namespace {

// All little-endian. Followed by the blocks' CRCs, then, for a compressed copy, by the blocks' stored lengths.
struct Fixed {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_crc;  // over all header pages, with this field 0
  InstanceId instance;
  std::uint32_t blob;
  std::uint32_t generation;
  std::uint64_t length;
  std::uint64_t stored_length;  // bytes on disk after the header, without padding
  std::uint32_t block_bytes;
  std::uint32_t codec;
};
static_assert(sizeof(Fixed) == 64);
static_assert(std::has_unique_object_representations_v<Fixed>);

// Follows Fixed in an encrypted copy's header; the tags come after the other lists.
struct FixedSeal {
  SpillKeyId key_id;
  SpillNonce first_nonce;
  std::uint32_t reserved;
};
static_assert(sizeof(FixedSeal) == 32);
static_assert(sizeof(SpillTag) == 16);

struct Associated {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t codec;
  InstanceId instance;
  std::uint32_t blob;
  std::uint32_t generation;
  std::uint64_t length;
  std::uint32_t block;
  std::uint32_t bytes_on_disk;
};
static_assert(sizeof(Associated) == 56);
static_assert(std::has_unique_object_representations_v<Associated>);

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
  if (header.block_bytes.empty()) return header.length;
  return std::accumulate(header.block_bytes.begin(), header.block_bytes.end(), std::uint64_t{0});
}

Status damaged(std::string_view what) {
  return Status(Code::kCorruptData, concat("the copy's header is damaged: ", what));
}

}  // namespace

std::uint64_t header_bytes(std::uint64_t length, bool encrypted) {
  const std::uint64_t fixed = sizeof(Fixed) + (encrypted ? sizeof(FixedSeal) : 0);
  return round_up_page(fixed + (encrypted ? 8 + sizeof(SpillTag) : 8) * block_count(length));
}

std::uint64_t extent_bytes(std::uint64_t length, bool encrypted) {
  return header_bytes(length, encrypted) + round_up_page(length);
}

std::array<std::byte, 56> associated_data(const CopyIdentity& identity, std::uint64_t length, SpillCodec codec,
                                          std::uint32_t block, std::uint32_t bytes_on_disk) {
  const Associated associated{kSpillMagic,
                              kEncryptedSpillVersion,
                              static_cast<std::uint32_t>(codec),
                              identity.instance,
                              identity.key.blob,
                              identity.key.generation,
                              length,
                              block,
                              bytes_on_disk};
  return std::bit_cast<std::array<std::byte, 56>>(associated);
}

std::uint64_t packed_extent_bytes(const SpillHeader& header) {
  constexpr std::size_t kBlocks = kSpillPieceBytes / kSpillBlockBytes;
  std::uint64_t bytes = header_bytes(header.length, header.seal.has_value());
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
              header.seal ? kEncryptedSpillVersion : kSpillVersion,
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
  std::byte* at = out.data() + sizeof(fixed);
  if (header.seal) {
    const FixedSeal seal{header.seal->key_id, header.seal->first_nonce, 0};
    std::memcpy(at, &seal, sizeof(seal));
    at += sizeof(seal);
  }
  std::memcpy(at, header.block_crcs.data(), list);
  if (!header.block_bytes.empty()) std::memcpy(at + list, header.block_bytes.data(), list);
  if (header.seal) std::memcpy(at + 2 * list, header.seal->tags.data(), sizeof(SpillTag) * header.seal->tags.size());
  fixed.header_crc = crc_of(out);
  std::memcpy(out.data(), &fixed, sizeof(fixed));
}

Result<SpillHeader> decode_header(std::span<const std::byte> bytes, std::uint64_t length, bool encrypted) {
  Fixed fixed{};
  if (bytes.size() != header_bytes(length, encrypted)) return Status(Code::kInternal, "unexpected header size");
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  if (fixed.magic != kSpillMagic) return damaged("it does not start with ENSPILL1");
  if (fixed.version == (encrypted ? kSpillVersion : kEncryptedSpillVersion)) {
    return Status(Code::kCorruptData, encrypted ? "the copy is not encrypted, but this store's copies are"
                                                : "the copy is encrypted, but the daemon has no key");
  }
  if (fixed.version != (encrypted ? kEncryptedSpillVersion : kSpillVersion)) {
    return Status(Code::kVersionMismatch,
                  concat("the copy was written in format ", fixed.version, "; this version reads format ",
                         kSpillVersion, ", and ", kEncryptedSpillVersion, " with a key"));
  }
  if (fixed.header_crc != crc_of(bytes)) return damaged("checksum mismatch");
  if (fixed.length != length) {
    return damaged(concat("it belongs to a blob of ", fixed.length, " bytes, not of ", length));
  }
  if (fixed.block_bytes != kSpillBlockBytes || fixed.codec > static_cast<std::uint32_t>(SpillCodec::kZstd)) {
    return damaged(concat("blocks of ", fixed.block_bytes, " bytes with codec ", fixed.codec, " are not supported"));
  }
  SpillHeader header;
  header.identity = {fixed.instance, {fixed.blob, fixed.generation}};
  header.length = length;
  header.codec = static_cast<SpillCodec>(fixed.codec);
  header.block_crcs.resize(block_count(length));
  const std::size_t list = 4 * header.block_crcs.size();
  const std::byte* at = bytes.data() + sizeof(fixed);
  if (encrypted) {
    FixedSeal seal{};
    std::memcpy(&seal, at, sizeof(seal));
    at += sizeof(seal);
    header.seal = CopySeal{seal.key_id, seal.first_nonce, std::vector<SpillTag>(header.block_crcs.size())};
    std::memcpy(header.seal->tags.data(), at + 2 * list, sizeof(SpillTag) * header.seal->tags.size());
  }
  std::memcpy(header.block_crcs.data(), at, list);
  if (encrypted || header.codec != SpillCodec::kNone) {
    header.block_bytes.resize(header.block_crcs.size());
    std::memcpy(header.block_bytes.data(), at + list, list);
    for (std::size_t block = 0; block < header.block_bytes.size(); ++block) {
      const std::uint64_t whole = std::min(kSpillBlockBytes, length - block * kSpillBlockBytes);
      if (header.block_bytes[block] == 0 || header.block_bytes[block] > whole) {
        return damaged(
            concat("block ", block, " of ", whole, " bytes declares ", header.block_bytes[block], " on disk"));
      }
    }
  }
  if (fixed.stored_length != stored_bytes(header)) {
    return damaged(
        concat("it declares ", fixed.stored_length, " bytes on disk, but its blocks have ", stored_bytes(header)));
  }
  return header;
}

SpillLocation pack_location(const SpillPosition& place, const BlobKey& blob) {
  const std::uint64_t where = (place.offset / kSpillPage) | (static_cast<std::uint64_t>(place.file) << 32);
  return where | (static_cast<std::uint64_t>(check_bits(where, blob)) << 48);
}

SpillPosition position_in(SpillLocation location) {
  return {static_cast<std::uint16_t>(location >> 32), (location & UINT32_MAX) * kSpillPage};
}

Result<SpillPosition> unpack_location(SpillLocation location, const BlobKey& blob) {
  const std::uint64_t where = location & ((1ULL << 48) - 1);
  const SpillPosition place = position_in(location);
  if (place.file == 0 || location >> 48 != check_bits(where, blob)) {
    return Status(Code::kObjectLost, concat("blob ", blob.blob, " (generation ", blob.generation,
                                            ") has no copy: its location, ", location, ", belongs to another blob"));
  }
  return place;
}

}  // namespace entrepot
