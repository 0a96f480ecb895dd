// Records: an object's metadata tree, its buffers, the blobs that it references, and an inline payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "shm/layout.h"

namespace entrepot {

struct RecordParts {
  std::span<const BufferRef> buffers{};
  std::span<const RecordBlob> blobs{};  // distinct
  std::string_view tree{};
  std::string_view payload{};  // inline
};

// Size of the record, a multiple of kRecordAlign. kInvalidArgument if it exceeds 2^32 - 1 bytes, or the payload
// kInlineMaxBytes.
[[nodiscard]] Result<std::uint32_t> record_bytes(const RecordParts& parts);

// Writes the record, including its checksum, into `out` (record_bytes long). kInvalidArgument if a buffer refers beyond
// the inline payload or to a blob that is not in `blobs`.
[[nodiscard]] Status build_record(const RecordParts& parts, std::span<std::byte> out);

// Reads a record in place. parse() checks all counts and offsets against the available bytes, and inline buffers
// against the payload; offsets into blobs are checked by code that knows the blobs. Allocates only for errors.
class RecordView {
 public:
  [[nodiscard]] static Result<RecordView> parse(std::span<const std::byte> bytes);

  // kCorruptData unless the checksum matches (for adoption and info; not on the hot path).
  [[nodiscard]] Status check_crc() const;

  [[nodiscard]] std::span<const BufferRef> buffers() const { return buffers_; }
  [[nodiscard]] std::span<const RecordBlob> blobs() const { return blobs_; }
  [[nodiscard]] std::string_view tree() const { return tree_; }
  [[nodiscard]] std::span<const std::byte> payload() const { return payload_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }  // the whole record
  // The bytes of an inline buffer (buffer.blob == kInlineBlob) of this record.
  [[nodiscard]] std::span<const std::byte> inline_buffer(const BufferRef& buffer) const {
    return payload_.subspan(buffer.offset, buffer.length);
  }

 private:
  std::span<const std::byte> bytes_;
  std::span<const BufferRef> buffers_;
  std::span<const RecordBlob> blobs_;
  std::string_view tree_;
  std::span<const std::byte> payload_;
};

}  // namespace entrepot
