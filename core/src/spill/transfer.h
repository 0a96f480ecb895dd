// Transfer of one piece of a copy between a segment and a spill file: with direct I/O where alignment permits,
// otherwise through a buffer. Each block's checksum is computed over the bytes passed to, or read from, the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "os/direct_io.h"
#include "os/mapping.h"
#include "spill/codec.h"
#include "spill/extent_format.h"
#include "spill/space.h"

namespace entrepot {

// A copy being written or read. Filled in by the requester; then each piece's worker touches only its own blocks.
struct SpillTransfer {
  bool is_read = false;
  std::uint64_t ticket = 0;
  BlobKey key;
  std::uint64_t length = 0;
  std::vector<CopyIdentity> identities;       // of a write: one; of a read: all that are acceptable
  std::shared_ptr<const os::Mapping> memory;  // keeps `data` mapped
  std::byte* data = nullptr;
  SpillExtent extent;  // of a write: set by the worker that starts it
  // kNone without a cipher: moved as is, by several workers at once. Otherwise one worker moves all of it. The codec of
  // a read is taken from the header, so any value but kNone will do.
  SpillCodec codec = SpillCodec::kNone;
  SpillCipher* cipher = nullptr;           // null: not encrypted
  std::vector<std::uint32_t> block_crcs;   // of the bytes moved
  std::vector<std::uint32_t> block_bytes;  // of a compressed or encrypted copy: on disk
  std::optional<CopySeal> seal;            // of an encrypted copy that was written
  std::uint64_t extent_used = 0;  // of a compressed copy that was written: bytes used of the extent, header included
  std::vector<std::byte> header;  // of a read: as found on disk
};

// Buffers of one worker.
struct SpillBuffers {
  os::AlignedBuffer header;
  os::AlignedBuffer tail;
  os::AlignedBuffer payload;
  std::map<SpillCodec, std::unique_ptr<BlockPacker>> packers;  // those used so far
};

[[nodiscard]] bool is_single_piece(const SpillTransfer& transfer);
[[nodiscard]] inline bool is_packed(const SpillTransfer& transfer) { return transfer.codec != SpillCodec::kNone; }
// Whether the blocks on disk differ from those in memory; such copies use write_packed() and read_packed().
[[nodiscard]] inline bool is_single_worker(const SpillTransfer& transfer) {
  return is_packed(transfer) || transfer.cipher != nullptr;
}
[[nodiscard]] inline std::uint64_t header_bytes(const SpillTransfer& transfer) {
  return header_bytes(transfer.length, transfer.cipher != nullptr);
}

// Writes [at, at + bytes) of the payload, together with the header if the copy is a single piece.
[[nodiscard]] Status write_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                                 SpillBuffers& buffers);
// Writes the header, which completes the copy; after all pieces of a copy of several.
[[nodiscard]] Status write_header(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers);

// Reads [at, at + bytes), together with the header if it is the first piece.
[[nodiscard]] Status read_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                                SpillBuffers& buffers);
// After all pieces: verifies that it is the requested copy, and that every block is as written. kCorruptData names
// file, offset and block.
[[nodiscard]] Status check_copy(const SpillTransfer& transfer);

// ---- shared with packed copies ----
[[nodiscard]] Status write_at(os::FileIo& io, const SpillTransfer& transfer, std::span<const os::IoPiece> pieces,
                              std::uint64_t offset);
[[nodiscard]] Status with_position(const Status& status, const SpillTransfer& transfer);

}  // namespace entrepot
