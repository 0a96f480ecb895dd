// Copies that are packed on disk, or encrypted, or both. One worker moves such a copy from its beginning to its end,
// because where a block lies depends on how much those before it shrank; several copies move side by side.
#pragma once

#include "base/status.h"
#include "daemon/spill_codec.h"
#include "daemon/spill_io.h"
#include "os/direct_io.h"

namespace entrepot {

// Is there an eighth to gain? Packs a few samples. An error: the library cannot be had.
[[nodiscard]] Result<bool> is_worth_packing(const SpillTransfer& transfer, const SpillPacking& packing,
                                            SpillBuffers& buffers);

// All of the copy, its header last; extent_used says what it took of the extent.
[[nodiscard]] Status write_packed(os::FileIo& io, SpillTransfer& transfer, const SpillPacking& packing,
                                  SpillBuffers& buffers);
// All of it; then check_copy() as for any other. Blocks whose checksum does not fit are not unpacked. A block that is
// not what was encrypted for this place is kCorruptData.
[[nodiscard]] Status read_packed(os::FileIo& io, SpillTransfer& transfer, SpillBuffers& buffers);

}  // namespace entrepot
