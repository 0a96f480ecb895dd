#include "shm/record.h"

#include <algorithm>
#include <cstring>

#include "base/align.h"
#include "base/crc32c.h"
#include "base/text.h"

namespace entrepot {

namespace {

struct Shape {
  std::uint64_t blobs_offset = 0;
  std::uint64_t tree_offset = 0;
  std::uint64_t inline_offset = 0;
  std::uint64_t total = 0;
};

Shape shape_of(const RecordParts& parts) {
  Shape shape;
  shape.blobs_offset = sizeof(RecordHeader) + parts.buffers.size_bytes();
  shape.tree_offset = shape.blobs_offset + parts.blobs.size_bytes();
  shape.inline_offset = round_up(shape.tree_offset + parts.tree.size(), kRecordAlign);
  shape.total = round_up(shape.inline_offset + parts.payload.size(), kRecordAlign);
  return shape;
}

constexpr std::size_t kCrcFrom = offsetof(RecordHeader, total_bytes);

std::uint32_t crc_of(std::span<const std::byte> record) {
  return crc32c(record.data() + kCrcFrom, record.size() - kCrcFrom);
}

Status corrupt(const std::string& what) {
  return Status(Code::kCorruptData, concat("record: ", what, "; the object is lost, recompute it"));
}

bool lists(std::span<const RecordBlob> blobs, const BufferRef& buffer) {
  return std::any_of(blobs.begin(), blobs.end(), [&](const RecordBlob& blob) {
    return blob.blob == buffer.blob && blob.generation == buffer.generation;
  });
}

}  // namespace

Result<std::uint32_t> record_bytes(const RecordParts& parts) {
  if (parts.payload.size() > kInlineMaxBytes) {
    return Status(Code::kInvalidArgument,
                  concat("an inline payload of ", parts.payload.size(), " bytes exceeds the limit of ", kInlineMaxBytes,
                         "; store larger payloads in a blob"));
  }
  const std::uint64_t total = shape_of(parts).total;
  if (total > UINT32_MAX) {
    return Status(Code::kInvalidArgument, concat("metadata of ", total, " bytes exceeds the limit of ", UINT32_MAX,
                                                 "; split the value into several objects"));
  }
  return static_cast<std::uint32_t>(total);
}

Status build_record(const RecordParts& parts, std::span<std::byte> out) {
  ASSIGN_OR_RETURN(const std::uint32_t total, record_bytes(parts));
  if (out.size() != total) {
    return Status(Code::kInternal, concat("a record of ", total, " bytes does not fit in a buffer of ", out.size()));
  }
  for (std::size_t i = 0; i < parts.buffers.size(); ++i) {
    const BufferRef& buffer = parts.buffers[i];
    if (buffer.blob == kInlineBlob) {
      if (buffer.offset > parts.payload.size() || buffer.length > parts.payload.size() - buffer.offset) {
        return Status(Code::kInvalidArgument, concat("buffer ", i, " of ", buffer.length, " bytes at ", buffer.offset,
                                                     " exceeds the inline payload of ", parts.payload.size()));
      }
    } else if (!lists(parts.blobs, buffer)) {
      return Status(Code::kInvalidArgument, concat("buffer ", i, " is in blob ", buffer.blob, " (generation ",
                                                   buffer.generation, "), which the object does not reference"));
    }
  }
  const Shape shape = shape_of(parts);
  RecordHeader header{};
  header.magic = kRecordMagic;
  header.version = kRecordVersion;
  header.total_bytes = total;
  header.buffer_count = static_cast<std::uint32_t>(parts.buffers.size());
  header.blob_count = static_cast<std::uint32_t>(parts.blobs.size());
  header.tree_offset = static_cast<std::uint32_t>(shape.tree_offset);
  header.tree_bytes = static_cast<std::uint32_t>(parts.tree.size());
  header.inline_offset = static_cast<std::uint32_t>(shape.inline_offset);
  header.inline_bytes = static_cast<std::uint32_t>(parts.payload.size());
  const auto copy = [&](std::uint64_t offset, const void* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(out.data() + offset, data, bytes);
  };
  std::fill(out.begin(), out.end(), std::byte{0});
  copy(0, &header, sizeof(header));
  copy(sizeof(RecordHeader), parts.buffers.data(), parts.buffers.size_bytes());
  copy(shape.blobs_offset, parts.blobs.data(), parts.blobs.size_bytes());
  copy(shape.tree_offset, parts.tree.data(), parts.tree.size());
  copy(shape.inline_offset, parts.payload.data(), parts.payload.size());
  header.crc = crc_of(out);
  copy(0, &header, sizeof(header));
  return Status::ok();
}

Result<RecordView> RecordView::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(RecordHeader)) return corrupt(concat(bytes.size(), " bytes are too few for the header"));
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(RecordHeader) != 0 ||
      reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(BufferRef) != 0) {
    return corrupt("it is not aligned to 8 bytes");
  }
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kRecordMagic) return corrupt(concat("bad magic number ", header.magic));
  if (header.version != kRecordVersion) {
    return Status(Code::kVersionMismatch,
                  concat("the record has version ", header.version, ", but this build supports version ",
                         kRecordVersion, "; use the version of Entrepot that wrote it"));
  }
  if (header.total_bytes != bytes.size()) {
    return corrupt(concat("its header declares ", header.total_bytes, " bytes, but there are ", bytes.size()));
  }
  const std::uint64_t blobs_offset = sizeof(RecordHeader) + std::uint64_t{header.buffer_count} * sizeof(BufferRef);
  const std::uint64_t refs_end = blobs_offset + std::uint64_t{header.blob_count} * sizeof(RecordBlob);
  if (refs_end > bytes.size()) {
    return corrupt(concat(header.buffer_count, " buffers and ", header.blob_count, " blobs do not fit in ",
                          bytes.size(), " bytes"));
  }
  const auto inside = [&](std::uint64_t offset, std::uint64_t length) {
    return offset >= refs_end && offset <= bytes.size() && length <= bytes.size() - offset;
  };
  if (!inside(header.tree_offset, header.tree_bytes)) {
    return corrupt(concat("its tree (", header.tree_bytes, " bytes at ", header.tree_offset, ") is out of range"));
  }
  if (!inside(header.inline_offset, header.inline_bytes)) {
    return corrupt(
        concat("its payload (", header.inline_bytes, " bytes at ", header.inline_offset, ") is out of range"));
  }
  RecordView view;
  view.bytes_ = bytes;
  view.buffers_ = {reinterpret_cast<const BufferRef*>(bytes.data() + sizeof(RecordHeader)), header.buffer_count};
  view.blobs_ = {reinterpret_cast<const RecordBlob*>(bytes.data() + blobs_offset), header.blob_count};
  view.tree_ = {reinterpret_cast<const char*>(bytes.data() + header.tree_offset), header.tree_bytes};
  view.payload_ = bytes.subspan(header.inline_offset, header.inline_bytes);
  for (const BufferRef& buffer : view.buffers_) {
    if (buffer.blob != kInlineBlob) continue;
    if (buffer.offset > view.payload_.size() || buffer.length > view.payload_.size() - buffer.offset) {
      return corrupt(concat("a buffer (", buffer.length, " bytes at ", buffer.offset, ") is outside the payload of ",
                            view.payload_.size(), " bytes"));
    }
  }
  return view;
}

Status RecordView::check_crc() const {
  RecordHeader header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (header.crc == crc_of(bytes_)) return Status::ok();
  return corrupt(concat("checksum mismatch: computed ", crc_of(bytes_), ", expected ", header.crc));
}

}  // namespace entrepot
