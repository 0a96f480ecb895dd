// On-disk format of a copy (docs/formats/spill-files.md), and the word that locates it.
//
//   | header: identity, length, CRC, stored length and tag of each block; one page, more where the lists need them |
//   | payload, block by block, or packed: every four blocks begin at a page; padded with zeros |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/align.h"
#include "base/id.h"
#include "base/status.h"
#include "spill/backend.h"
#include "spill/cipher.h"
#include "spill/codec.h"

namespace entrepot {

inline constexpr std::uint64_t kSpillMagic = 0x314c4c4950534e45ULL;  // "ENSPILL1" in memory
inline constexpr std::uint32_t kSpillVersion = 2;
inline constexpr std::uint32_t kEncryptedSpillVersion = 3;
inline constexpr std::uint64_t kSpillBlockBytes = 1U << 20;  // one CRC each
inline constexpr std::uint64_t kMaxSpillBytes = std::uint64_t{1} << 40;

// Owner of the bytes. Blob numbers are reused by every store, so the store's instance is part of it.
struct CopyIdentity {
  InstanceId instance{};
  BlobKey key;
  bool operator==(const CopyIdentity&) const = default;
};

// Encryption of a copy: block by block, each with its own nonce and tag.
struct CopySeal {
  SpillKeyId key_id{};
  SpillNonce first_nonce{};
  std::vector<SpillTag> tags;  // by block
};

struct SpillHeader {
  CopyIdentity identity;
  std::uint64_t length = 0;
  SpillCodec codec = SpillCodec::kNone;
  std::vector<std::uint32_t> block_crcs;  // of the bytes on disk
  // For a compressed or encrypted copy: each block's size on disk; equal to its size in memory if it is not compressed.
  std::vector<std::uint32_t> block_bytes;
  std::optional<CopySeal> seal;  // none: not encrypted
};

[[nodiscard]] constexpr std::uint64_t round_up_page(std::uint64_t bytes) { return round_up(bytes, kSpillPage); }
[[nodiscard]] constexpr std::uint64_t block_count(std::uint64_t length) {
  return (length + kSpillBlockBytes - 1) / kSpillBlockBytes;
}
[[nodiscard]] std::uint64_t header_bytes(std::uint64_t length, bool encrypted = false);
// Header and payload, in whole pages; a compressed copy takes less.
[[nodiscard]] std::uint64_t extent_bytes(std::uint64_t length, bool encrypted = false);
// Size of a compressed or encrypted copy, from its header.
[[nodiscard]] std::uint64_t packed_extent_bytes(const SpillHeader& header);
inline constexpr std::uint64_t kSpillPieceBytes = 4U << 20;  // whole blocks; what one worker moves at a time

// What a block's tag authenticates besides its bytes: the owner, the block's index, and its size on disk.
[[nodiscard]] std::array<std::byte, 56> associated_data(const CopyIdentity& identity, std::uint64_t length,
                                                        SpillCodec codec, std::uint32_t block,
                                                        std::uint32_t bytes_on_disk);

// `out` must have header_bytes() bytes.
void encode_header(const SpillHeader& header, std::span<std::byte> out);
// kCorruptData says what does not match; kVersionMismatch names both versions. An encrypted copy's header is never
// accepted as an unencrypted one's, or vice versa.
[[nodiscard]] Result<SpillHeader> decode_header(std::span<const std::byte> bytes, std::uint64_t length,
                                                bool encrypted = false);

struct SpillPosition {
  std::uint16_t file = 0;    // never 0
  std::uint64_t offset = 0;  // in the file
  auto operator<=>(const SpillPosition&) const = default;
};

[[nodiscard]] SpillLocation pack_location(const SpillPosition& place, const BlobKey& blob);
[[nodiscard]] SpillPosition position_in(SpillLocation location);  // does not verify the check bits
// kObjectLost if the check bits are not those of this blob.
[[nodiscard]] Result<SpillPosition> unpack_location(SpillLocation location, const BlobKey& blob);

}  // namespace entrepot
