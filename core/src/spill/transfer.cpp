#include "spill/transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/text.h"

namespace entrepot {

namespace {

static_assert(kSpillPage == os::kDirectAlign);
static_assert(kSpillPieceBytes % kSpillBlockBytes == 0);

// Direct I/O requires aligned memory; the page cache accepts any.
bool uses_direct_io(const SpillTransfer& transfer, const std::byte* data) {
  return !transfer.extent.file->direct || reinterpret_cast<std::uintptr_t>(data) % os::kDirectAlign == 0;
}

void compute_block_crcs(SpillTransfer& transfer, std::uint64_t at, const std::byte* data, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += kSpillBlockBytes) {
    const std::uint64_t block = std::min(kSpillBlockBytes, bytes - done);
    transfer.block_crcs[(at + done) / kSpillBlockBytes] = crc32c(data + done, block);
  }
}

Status prepare_header(SpillTransfer& transfer, SpillBuffers& buffers) {
  const std::uint64_t bytes = header_bytes(transfer);
  RETURN_IF_ERROR(buffers.header.ensure(bytes));
  encode_header({transfer.identities.front(), transfer.length, transfer.codec, transfer.block_crcs,
                 transfer.block_bytes, transfer.seal},
                {buffers.header.data(), bytes});
  return Status::ok();
}

}  // namespace

Status with_position(const Status& status, const SpillTransfer& transfer) {
  return status.with_context(concat(transfer.extent.file->path, ", copy at ", transfer.extent.offset));
}

Status write_at(os::FileIo& io, const SpillTransfer& transfer, std::span<const os::IoPiece> pieces,
                std::uint64_t offset) {
  const SpillFile& file = *transfer.extent.file;
  RETURN_IF_ERROR(with_position(os::write_fully(io, file.fd.get(), pieces, transfer.extent.offset + offset), transfer));
  if (file.direct) return Status::ok();
  std::uint64_t bytes = 0;
  for (const os::IoPiece& piece : pieces)
    bytes += piece.bytes;
  os::drop_from_cache(file.fd.get(), transfer.extent.offset + offset, bytes);
  return Status::ok();
}

bool is_single_piece(const SpillTransfer& transfer) { return transfer.length <= kSpillPieceBytes; }

Status write_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                   SpillBuffers& buffers) {
  std::byte* source = transfer.data + at;
  std::array<os::IoPiece, 3> pieces{};
  const std::uint64_t whole = bytes & ~(kSpillPage - 1);
  if (uses_direct_io(transfer, source)) {
    // What follows the payload in its last page belongs to something else and must not get into the file.
    pieces[1] = {source, whole};
    if (whole < bytes) {
      RETURN_IF_ERROR(buffers.tail.ensure(kSpillPage));
      std::memset(buffers.tail.data(), 0, kSpillPage);
      std::memcpy(buffers.tail.data(), source + whole, bytes - whole);
      pieces[2] = {buffers.tail.data(), kSpillPage};
    }
  } else {
    const std::uint64_t padded = round_up_page(bytes);
    RETURN_IF_ERROR(buffers.payload.ensure(padded));
    std::memcpy(buffers.payload.data(), source, bytes);
    std::memset(buffers.payload.data() + bytes, 0, padded - bytes);
    source = buffers.payload.data();
    pieces[1] = {source, padded};
  }
  compute_block_crcs(transfer, at, source, bytes);
  const std::uint64_t header = header_bytes(transfer.length);
  if (!is_single_piece(transfer)) return write_at(io, transfer, pieces, header + at);
  RETURN_IF_ERROR(prepare_header(transfer, buffers));
  pieces[0] = {buffers.header.data(), header};
  return write_at(io, transfer, pieces, 0);
}

Status write_header(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers) {
  RETURN_IF_ERROR(prepare_header(transfer, buffers));
  const os::IoPiece header{buffers.header.data(), header_bytes(transfer)};
  return write_at(io, transfer, {&header, 1}, 0);
}

Status read_piece(os::FileIo& io, SpillTransfer& transfer, std::uint64_t at, std::uint64_t bytes,
                  SpillBuffers& buffers) {
  const SpillFile& file = *transfer.extent.file;
  std::byte* target = transfer.data + at;
  const bool direct_io = uses_direct_io(transfer, target);
  const std::uint64_t whole = bytes & ~(kSpillPage - 1);
  const std::uint64_t header = header_bytes(transfer.length);
  std::array<os::IoPiece, 3> pieces{};
  if (at == 0) {
    RETURN_IF_ERROR(buffers.header.ensure(header));
    pieces[0] = {buffers.header.data(), header};
  }
  if (direct_io) {
    pieces[1] = {target, whole};
    RETURN_IF_ERROR(buffers.tail.ensure(kSpillPage));
    if (whole < bytes) pieces[2] = {buffers.tail.data(), kSpillPage};
  } else {
    RETURN_IF_ERROR(buffers.payload.ensure(round_up_page(bytes)));
    pieces[1] = {buffers.payload.data(), round_up_page(bytes)};
  }
  const std::uint64_t offset = transfer.extent.offset + (at == 0 ? 0 : header + at);
  RETURN_IF_ERROR(with_position(os::read_fully(io, file.fd.get(), pieces, offset), transfer));
  if (!file.direct) os::drop_from_cache(file.fd.get(), offset, round_up_page(bytes) + (at == 0 ? header : 0));
  if (!direct_io) {
    std::memcpy(target, buffers.payload.data(), bytes);
  } else if (whole < bytes) {
    std::memcpy(target + whole, buffers.tail.data(), bytes - whole);
  }
  compute_block_crcs(transfer, at, target, bytes);
  if (at == 0) transfer.header.assign(buffers.header.data(), buffers.header.data() + header);
  return Status::ok();
}

Status check_copy(const SpillTransfer& transfer) {
  const auto header = decode_header(transfer.header, transfer.length, transfer.cipher != nullptr);
  if (!header.is_ok()) return with_position(header.status(), transfer);
  const auto& accepted = transfer.identities;
  if (std::find(accepted.begin(), accepted.end(), header->identity) == accepted.end()) {
    return with_position(
        Status(Code::kCorruptData, concat("it is a copy of blob ", header->identity.key.blob, " (generation ",
                                          header->identity.key.generation, ") of store ",
                                          to_hex(header->identity.instance), ", not the requested one")),
        transfer);
  }
  for (std::size_t block = 0; block < transfer.block_crcs.size(); ++block) {
    if (header->block_crcs[block] == transfer.block_crcs[block]) continue;
    return with_position(Status(Code::kCorruptData, concat("block ", block, " of ", transfer.block_crcs.size(),
                                                           " is damaged: checksum mismatch")),
                         transfer);
  }
  return Status::ok();
}

}  // namespace entrepot
