// Copies that are compressed on disk, or encrypted, or both. One worker moves such a copy from beginning to end,
// because each block's position depends on the compressed size of those before it; several copies move in parallel.
#pragma once

#include "base/status.h"
#include "os/direct_io.h"
#include "spill/codec.h"
#include "spill/transfer.h"

namespace entrepot {

// Whether compression would save at least an eighth, from a few samples. Fails if the library cannot be loaded.
[[nodiscard]] Result<bool> is_worth_packing(const SpillTransfer& transfer, const SpillPacking& packing,
                                            SpillBuffers& buffers);

// Writes the whole copy, its header last; extent_used is set to the bytes used of the extent.
[[nodiscard]] Status write_packed(os::FileIo& io, SpillTransfer& transfer, const SpillPacking& packing,
                                  SpillBuffers& buffers);
// Reads the whole copy; check_copy() must follow as for any other. Blocks whose checksum does not match are not
// decompressed. kCorruptData if a block was not encrypted for this place.
[[nodiscard]] Status read_packed(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers);

}  // namespace entrepot
