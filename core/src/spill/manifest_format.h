// Binary format of the manifest: a head, then records, each with its length and CRC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "spill/manifest.h"

namespace entrepot {

inline constexpr std::uint64_t kManifestFrameBytes = 8;  // length and CRC before each record
inline constexpr std::uint64_t kMaxRecordBytes = 256ULL << 20;

enum class ManifestRecord : std::uint8_t { kRemember = 1, kForget = 2, kSealed = 3 };

struct ManifestHead {
  InstanceId instance{};
  std::optional<SpillKeyId> key_id;  // none: not encrypted
};
[[nodiscard]] std::uint64_t head_bytes(bool encrypted);
[[nodiscard]] std::string encode_head(const ManifestHead& head);
// kVersionMismatch names both versions, kCorruptData what does not match.
[[nodiscard]] Result<ManifestHead> decode_head(std::string_view bytes);

[[nodiscard]] std::string encode_remember(const RememberedObject& object);
[[nodiscard]] std::string encode_forget(const IdBytes& id, std::uint32_t generation);

// A record as this store's manifest has it on disk: encrypted if there is a cipher.
[[nodiscard]] Result<std::string> seal_record(std::string record, const InstanceId& instance, SpillCipher* cipher);

struct DecodedRecord {
  SpillManifest::Key key;
  std::optional<RememberedObject> object;  // none: forget
  std::uint64_t bytes = 0;                 // including its frame
};
// Decodes the record at the beginning of `bytes`; kCorruptData unless it is complete and valid. With a cipher, accepts
// only records encrypted with it.
[[nodiscard]] Result<DecodedRecord> decode_record(std::string_view bytes, const InstanceId& instance = {},
                                                  const SpillCipher* cipher = nullptr);

}  // namespace entrepot
