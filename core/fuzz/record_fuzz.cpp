// Object records: arbitrary bytes are rejected, or every part returned lies within them.
#include <memory>

#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "os/mapping.h"
#include "shm/record.h"

namespace entrepot::fuzz {
namespace {

bool inside(std::span<const std::byte> whole, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  return bytes == 0 || (at >= whole.data() && bytes <= static_cast<std::size_t>(whole.data() + whole.size() - at));
}

void run(const Bytes& bytes) {
  // Aligned as operator new does, and of exactly this size, so that AddressSanitizer sees every read beyond the end.
  const auto memory = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(memory.get(), bytes.data(), bytes.size());
  const std::span<const std::byte> whole(memory.get(), bytes.size());
  const auto record = RecordView::parse(whole);
  if (!record.is_ok()) {
    require(!record.status().message().empty(), "an error says what is wrong");
    return;
  }
  require(inside(whole, record->tree().data(), record->tree().size()), "the tree lies inside");
  require(inside(whole, record->payload().data(), record->payload().size()), "the payload lies inside");
  require(inside(whole, record->blobs().data(), record->blobs().size_bytes()), "the blobs lie inside");
  for (const BufferRef& buffer : record->buffers()) {
    require(inside(whole, &buffer, sizeof(buffer)), "the buffers lie inside");
    if (buffer.blob != kInlineBlob) continue;
    const auto part = record->inline_buffer(buffer);
    require(inside(whole, part.data(), part.size()), "an inline buffer lies inside");
  }
  (void)record->check_crc();
}

Bytes record_of(const RecordParts& parts) {
  std::vector<std::byte> out(record_bytes(parts).take());
  require(build_record(parts, out).is_ok(), "a good record can be built");
  return bytes_of(out.data(), out.size());
}

}  // namespace

std::vector<Bytes> seeds() {
  const BufferRef buffers[] = {{3, 1, 0, 100}, {kInlineBlob, 0, 2, 5}};
  const RecordBlob blobs[] = {{3, 1}};
  return {record_of({buffers, blobs, "tree", "payload"}), record_of({{}, {}, "tree only", {}}), record_of({})};
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::run(entrepot::fuzz::bytes_of(data, size));
  return 0;
}
