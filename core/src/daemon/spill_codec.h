// How the blocks of a copy are packed on disk. The libraries are those of the machine, loaded when a folder was asked
// to be packed, or holds a copy that is: nothing is linked, and nothing is needed where nobody asks for it.
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
  std::int32_t level = 0;  // of zstd, 1 to 19
  bool operator==(const SpillPacking&) const = default;
};

// "none", "lz4", "zstd", "zstd:3". kInvalidArgument says what there is.
[[nodiscard]] Result<SpillPacking> parse_packing(std::string_view text);
[[nodiscard]] std::string to_text(const SpillPacking& packing);  // as parse_packing takes it

// Of one thread.
class BlockPacker {
 public:
  virtual ~BlockPacker() = default;
  // The bytes written to `to`; 0 if they would be more than `most`.
  [[nodiscard]] virtual std::uint64_t pack(const std::byte* from, std::uint64_t bytes, std::byte* to,
                                           std::uint64_t most) = 0;
  // Whether exactly `whole` bytes came out. Anything may be fed to it.
  [[nodiscard]] virtual bool unpack(const std::byte* from, std::uint64_t bytes, std::byte* to, std::uint64_t whole) = 0;
};

// kStoreUnavailable names the library that is missing, and the package that has it. Not for kNone.
[[nodiscard]] Result<std::unique_ptr<BlockPacker>> open_packer(const SpillPacking& packing);

}  // namespace entrepot
