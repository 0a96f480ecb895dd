#include "spill/packed_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/text.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMinPackedBytes = 64U << 10;  // smaller copies are mostly padding
constexpr std::uint64_t kSampleBytes = 32U << 10;
constexpr std::uint64_t kSamples = 4;
constexpr std::uint64_t kMinGain = 8;  // at least one part in so many must be saved

std::uint64_t max_packed_bytes(std::uint64_t bytes) { return bytes - bytes / kMinGain; }

Result<BlockPacker*> packer_of(const SpillPacking& packing, SpillBuffers& buffers) {
  std::unique_ptr<BlockPacker>& packer = buffers.packers[packing.codec];
  if (packer == nullptr) {
    ASSIGN_OR_RETURN(packer, open_packer(packing));
  }
  return packer.get();
}

// Encrypts a block; `to` may equal `from`.
Status seal_block(SpillTransfer& transfer, std::uint64_t block, const std::byte* from, std::uint32_t bytes,
                  std::byte* to) {
  const auto associated = associated_data(transfer.identities.front(), transfer.length, transfer.codec,
                                          static_cast<std::uint32_t>(block), bytes);
  CopySeal& seal = *transfer.seal;
  const SpillNonce nonce = nonce_after(seal.first_nonce, static_cast<std::uint32_t>(block));
  return transfer.cipher->seal(nonce, associated, from, bytes, to, seal.tags[block]);
}

Status unseal_block(const SpillTransfer& transfer, const SpillHeader& header, std::uint64_t block,
                    const std::byte* from, std::byte* to) {
  const auto index = static_cast<std::uint32_t>(block);
  const CopySeal& seal = *header.seal;
  const std::uint32_t bytes = header.block_bytes[block];
  if (transfer.cipher->unseal(nonce_after(seal.first_nonce, index),
                              associated_data(header.identity, header.length, header.codec, index, bytes),
                              seal.tags[block], from, bytes, to)) {
    return Status::ok();
  }
  return with_position(Status(Code::kCorruptData, concat("block ", block, " of ", header.block_bytes.size(),
                                                         " is damaged: authentication tag mismatch")),
                       transfer);
}

// kCorruptData: the copy cannot be read by this worker.
Status check_kind(const SpillTransfer& transfer, const SpillHeader& header) {
  const bool is_whole = header.codec == SpillCodec::kNone && transfer.cipher == nullptr;
  if (is_whole || packed_extent_bytes(header) > transfer.extent.bytes) {
    return with_position(Status(Code::kCorruptData, "it is not the requested compressed copy"), transfer);
  }
  if (header.seal && header.seal->key_id != transfer.cipher->key_id()) {
    return with_position(
        Status(Code::kCorruptData, concat("it is encrypted with key ", to_hex(header.seal->key_id),
                                          ", but the daemon's key is ", to_hex(transfer.cipher->key_id()))),
        transfer);
  }
  return Status::ok();
}

std::uint64_t whole_bytes(const SpillTransfer& transfer, std::uint64_t block) {
  return std::min(kSpillBlockBytes, transfer.length - block * kSpillBlockBytes);
}

}  // namespace

Result<bool> is_worth_packing(const SpillTransfer& transfer, const SpillPacking& packing, SpillBuffers& buffers) {
  if (transfer.length < kMinPackedBytes) return false;
  ASSIGN_OR_RETURN(BlockPacker * packer, packer_of(packing, buffers));
  RETURN_IF_ERROR(buffers.payload.ensure(kSampleBytes));
  const std::uint64_t apart = (transfer.length - kSampleBytes) / (kSamples - 1);
  std::uint64_t packed = 0;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    const std::uint64_t size = packer->pack(transfer.data + sample * apart, kSampleBytes, buffers.payload.data(),
                                            max_packed_bytes(kSampleBytes));
    packed += size == 0 ? kSampleBytes : size;
  }
  return packed <= max_packed_bytes(kSamples * kSampleBytes);
}

Status write_packed(os::FileIo& io, SpillTransfer& transfer, const SpillPacking& packing, SpillBuffers& buffers) {
  BlockPacker* packer = nullptr;
  if (is_packed(transfer)) {
    ASSIGN_OR_RETURN(packer, packer_of(packing, buffers));
  }
  RETURN_IF_ERROR(buffers.payload.ensure(kSpillPieceBytes + kSpillPage));
  std::byte* out = buffers.payload.data();
  const std::uint64_t blocks = block_count(transfer.length);
  transfer.block_bytes.assign(blocks, 0);
  if (transfer.cipher != nullptr) {
    const SpillNonce first = transfer.cipher->take_nonces(static_cast<std::uint32_t>(blocks));
    transfer.seal = CopySeal{transfer.cipher->key_id(), first, std::vector<SpillTag>(blocks)};
  }
  std::uint64_t end = header_bytes(transfer);
  std::uint64_t filled = 0;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    const std::byte* source = transfer.data + block * kSpillBlockBytes;
    const std::uint64_t whole = whole_bytes(transfer, block);
    std::uint64_t size = packer == nullptr ? 0 : packer->pack(source, whole, out + filled, max_packed_bytes(whole));
    if (size == 0 || size >= whole) {
      size = whole;
      if (transfer.cipher == nullptr) std::memcpy(out + filled, source, whole);
    } else {
      source = out + filled;
    }
    transfer.block_bytes[block] = static_cast<std::uint32_t>(size);
    if (transfer.cipher != nullptr) {
      RETURN_IF_ERROR(seal_block(transfer, block, source, transfer.block_bytes[block], out + filled));
    }
    transfer.block_crcs[block] = crc32c(out + filled, size);
    filled += size;
    const bool piece_ends = (block + 1) % (kSpillPieceBytes / kSpillBlockBytes) == 0 || block + 1 == blocks;
    if (!piece_ends) continue;
    const std::uint64_t padded = round_up_page(filled);
    std::memset(out + filled, 0, padded - filled);
    const os::IoPiece piece{out, padded};
    RETURN_IF_ERROR(write_at(io, transfer, {&piece, 1}, end));
    end += padded;
    filled = 0;
  }
  if (packer != nullptr) transfer.extent_used = end;
  return write_header(io, transfer, buffers);
}

Status read_packed(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers) {
  const SpillFile& file = *transfer.extent.file;
  const std::uint64_t head = header_bytes(transfer);
  RETURN_IF_ERROR(buffers.header.ensure(head));
  const os::IoPiece head_piece{buffers.header.data(), head};
  RETURN_IF_ERROR(with_position(os::read_fully(io, file.fd.get(), {&head_piece, 1}, transfer.extent.offset), transfer));
  transfer.header.assign(buffers.header.data(), buffers.header.data() + head);
  const auto header = decode_header(transfer.header, transfer.length, transfer.cipher != nullptr);
  if (!header.is_ok()) return with_position(header.status(), transfer);
  RETURN_IF_ERROR(check_kind(transfer, *header));
  BlockPacker* packer = nullptr;
  if (header->codec != SpillCodec::kNone) {
    ASSIGN_OR_RETURN(packer, packer_of({header->codec, 1}, buffers));  // the level does not matter here
  }
  RETURN_IF_ERROR(buffers.payload.ensure(kSpillPieceBytes));
  constexpr std::uint64_t kBlocks = kSpillPieceBytes / kSpillBlockBytes;
  std::uint64_t at = transfer.extent.offset + head;
  for (std::uint64_t first = 0; first < header->block_bytes.size(); first += kBlocks) {
    const std::uint64_t last = std::min<std::uint64_t>(first + kBlocks, header->block_bytes.size());
    std::uint64_t bytes = 0;
    for (std::uint64_t block = first; block < last; ++block)
      bytes += header->block_bytes[block];
    const os::IoPiece piece{buffers.payload.data(), round_up_page(bytes)};
    RETURN_IF_ERROR(with_position(os::read_fully(io, file.fd.get(), {&piece, 1}, at), transfer));
    if (!file.direct) os::drop_from_cache(file.fd.get(), at, piece.bytes);
    at += piece.bytes;
    std::byte* source = buffers.payload.data();
    for (std::uint64_t block = first; block < last; ++block) {
      const std::uint64_t size = header->block_bytes[block];
      const std::uint64_t whole = whole_bytes(transfer, block);
      std::byte* target = transfer.data + block * kSpillBlockBytes;
      transfer.block_crcs[block] = crc32c(source, size);
      if (transfer.block_crcs[block] != header->block_crcs[block]) return Status::ok();  // reported by check_copy()
      if (transfer.cipher != nullptr) {
        RETURN_IF_ERROR(unseal_block(transfer, *header, block, source, size == whole ? target : source));
      }
      if (size == whole) {
        if (transfer.cipher == nullptr) std::memcpy(target, source, whole);
      } else if (packer == nullptr || !packer->unpack(source, size, target, whole)) {
        return with_position(
            Status(Code::kCorruptData, concat("block ", block, " does not decompress to ", whole, " bytes")), transfer);
      }
      source += size;
    }
  }
  return Status::ok();
}

}  // namespace entrepot
