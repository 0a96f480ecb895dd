// One piece of a copy's way between a segment and a spill file: straight by direct I/O where addresses allow it, else
// through a buffer. Each block's checksum is taken of the bytes that were handed to the disk, or came from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "daemon/spill_codec.h"
#include "daemon/spill_extent.h"
#include "daemon/spill_space.h"
#include "os/direct_io.h"
#include "os/mapping.h"

namespace entrepot {

// A copy being written or read. Filled by whoever asks for it; then each piece's worker touches its own blocks alone.
struct SpillTransfer {
  bool is_read = false;
  std::uint64_t ticket = 0;
  BlobKey key;
  std::uint64_t length = 0;
  std::vector<CopyIdentity> identities;       // of a write: the one; of a read: those that are right
  std::shared_ptr<const os::Mapping> memory;  // keeps `data` mapped
  std::byte* data = nullptr;
  SpillExtent extent;  // of a write: found by the worker that begins it
  // kNone and no cipher: as it is, by several workers at once. Else one worker moves all of it. Of a read the codec is
  // known from the header, so any but kNone will do.
  SpillCodec codec = SpillCodec::kNone;
  SpillCipher* cipher = nullptr;           // null: not encrypted
  std::vector<std::uint32_t> block_crcs;   // of what was moved
  std::vector<std::uint32_t> block_bytes;  // of a packed or encrypted copy: on disk
  std::optional<CopySeal> seal;            // of an encrypted copy that was written
  std::uint64_t extent_used = 0;           // of a packed copy that was written: bytes of the extent, with the header
  std::vector<std::byte> header;           // of a read: as it was on disk
};

// Of one worker.
struct SpillBuffers {
  os::AlignedBuffer header;
  os::AlignedBuffer tail;
  os::AlignedBuffer payload;
  std::map<SpillCodec, std::unique_ptr<BlockPacker>> packers;  // those that were needed
};

[[nodiscard]] bool is_single_piece(const SpillTransfer& transfer);
[[nodiscard]] inline bool is_packed(const SpillTransfer& transfer) { return transfer.codec != SpillCodec::kNone; }
// Blocks are not on disk as they are in memory: write_packed() and read_packed() are for these.
[[nodiscard]] inline bool is_moved_by_one(const SpillTransfer& transfer) {
  return is_packed(transfer) || transfer.cipher != nullptr;
}
[[nodiscard]] inline std::uint64_t header_bytes(const SpillTransfer& transfer) {
  return header_bytes(transfer.length, transfer.cipher != nullptr);
}

// Writes [at, at + bytes) of the payload; of a copy of one piece the header with it.
[[nodiscard]] Status write_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                                 SpillBuffers& buffers);
// After all pieces of a copy of several: the header, which makes it whole.
[[nodiscard]] Status write_header(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers);

// Reads [at, at + bytes); with the first piece the header.
[[nodiscard]] Status read_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                                SpillBuffers& buffers);
// After all pieces: is it the copy that was asked for, and is every block what was written? kCorruptData names file,
// offset and block.
[[nodiscard]] Status check_copy(const SpillTransfer& transfer);

// ---- what packed copies need as well ----
[[nodiscard]] Status write_at(os::FileIo& io, const SpillTransfer& transfer, std::span<const os::IoPiece> pieces,
                              std::uint64_t offset);
[[nodiscard]] Status with_place(const Status& status, const SpillTransfer& transfer);

}  // namespace entrepot
