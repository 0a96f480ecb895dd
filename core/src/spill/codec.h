// Compression of spilled blocks. Uses the machine's libraries, loaded when compression is requested, or a compressed
// copy is found: they are not linked, and not needed otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace entrepot {

enum class SpillCodec : std::uint32_t { kNone = 0, kLz4 = 1, kZstd = 2 };

struct SpillPacking {
  SpillCodec codec = SpillCodec::kNone;
  std::int32_t level = 0;  // for zstd, 1 to 19
  bool operator==(const SpillPacking&) const = default;
};

// "none", "lz4", "zstd", "zstd:3". kInvalidArgument lists what is accepted.
[[nodiscard]] Result<SpillPacking> parse_packing(std::string_view text);
[[nodiscard]] std::string to_text(const SpillPacking& packing);  // inverse of parse_packing

// Used by one thread.
class BlockPacker {
 public:
  virtual ~BlockPacker() = default;
  // Returns the number of bytes written to `to`; 0 if they would exceed `max_bytes`.
  [[nodiscard]] virtual std::uint64_t pack(const std::byte* from, std::uint64_t bytes, std::byte* to,
                                           std::uint64_t max_bytes) = 0;
  // Whether exactly `unpacked_bytes` bytes were produced. Safe on arbitrary input.
  [[nodiscard]] virtual bool unpack(const std::byte* from, std::uint64_t bytes, std::byte* to,
                                    std::uint64_t unpacked_bytes) = 0;
};

// kStoreUnavailable names the missing library, and the package that provides it. Not for kNone.
[[nodiscard]] Result<std::unique_ptr<BlockPacker>> open_packer(const SpillPacking& packing);

}  // namespace entrepot
