#include "client/page_format.h"

#include "base/text.h"

namespace entrepot {

std::string page_tree() {
  // [1, ["entrepot.blob", 1, metadata, [0], []]] in msgpack, as the codec of blobs writes it.
  static constexpr std::string_view kCodec = "entrepot.blob";
  std::string tree("\x92\x01\x95", 3);
  tree += static_cast<char>(0xa0 + kCodec.size());
  tree += kCodec;
  tree += std::string("\x01\xc4", 2);
  tree += static_cast<char>(kPageMetadata.size());
  tree += kPageMetadata;
  tree += std::string("\x91\x00\x90", 3);
  return tree;
}

Status damaged_page(std::string_view what) {
  return {Code::kCorruptData, concat("this is no page of records, or a damaged one: ", what)};
}

Result<PageView> open_page(std::span<const std::byte> page) {
  PageView view;
  if (page.size() < sizeof(PageHeader)) return damaged_page(concat("it has ", page.size(), " bytes"));
  std::memcpy(&view.header, page.data(), sizeof(PageHeader));
  if (view.header.magic != kPageMagic) return damaged_page("it does not begin with EPG1");
  if (view.header.version != kPageVersion) {
    return Status(Code::kVersionMismatch,
                  concat("this page has version ", view.header.version, " of the format of pages, and this program ",
                         "reads version ", kPageVersion, ": use the version of entrepot that wrote it"));
  }
  if (view.header.framing > static_cast<std::uint8_t>(Framing::kAligned)) return damaged_page("its framing is unknown");
  if (view.header.bytes < sizeof(PageHeader) || view.header.bytes > page.size()) {
    return damaged_page(concat("it has ", page.size(), " bytes, but should have ", view.header.bytes));
  }
  view.chunks = page.subspan(sizeof(PageHeader), view.header.bytes - sizeof(PageHeader));
  return view;
}

Result<ChunkView> next_chunk(std::span<const std::byte>& chunks) {
  ChunkHeader header;
  if (chunks.size() < sizeof(header)) return damaged_page("a chunk is incomplete");
  std::memcpy(&header, chunks.data(), sizeof(header));
  chunks = chunks.subspan(sizeof(header));
  if (header.bytes > chunks.size()) return damaged_page("a chunk exceeds its page");
  const ChunkView view{chunks.first(header.bytes), header.records};
  chunks = chunks.subspan(std::min<std::uint64_t>(round_up(header.bytes, kChunkAlign), chunks.size()));
  return view;
}

}  // namespace entrepot
