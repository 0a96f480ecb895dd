#include "plasma/contents.h"

#include <cstdint>

namespace entrepot::plasma {
namespace {

constexpr std::string_view kBytesNode("\x95\xacpython.bytes\x01", 15);
constexpr std::string_view kByteArrayNode("\x95\xb0python.bytearray\x01", 19);
constexpr std::string_view kBlobNode(
    "\x95\xad"
    "entrepot.blob\x01",
    16);
constexpr std::string_view kOneBuffer("\x91\x00\x90", 3);  // and no children
constexpr std::string_view kNoBuffers("\x90\x90", 2);

std::span<const std::byte> span_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::span<const std::byte> span_of(const BufferView& buffer) { return {buffer.data, buffer.length}; }

// Takes a msgpack byte string from the front; nothing if there is none.
std::optional<std::string_view> take_bytes(std::string_view& packed) {
  if (packed.empty()) return std::nullopt;
  const auto first = static_cast<std::uint8_t>(packed[0]);
  if (first < 0xc4 || first > 0xc6) return std::nullopt;
  const std::size_t width = std::size_t{1} << (first - 0xc4);
  if (packed.size() < 1 + width) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i)
    length = length << 8U | static_cast<std::uint8_t>(packed[1 + i]);
  packed.remove_prefix(1 + width);
  if (packed.size() < length) return std::nullopt;
  const std::string_view bytes = packed.substr(0, length);
  packed.remove_prefix(length);
  return bytes;
}

// Skips the number of inline bytes that trees of format 2 begin with.
bool skip_inlined(std::string_view& packed) {
  const auto first = static_cast<std::uint8_t>(packed.empty() ? 0xff : packed[0]);
  std::size_t bytes = 0;
  if (first < 0x80) bytes = 1;
  if (first >= 0xcc && first <= 0xcf) bytes = 1 + (std::size_t{1} << (first - 0xcc));
  if (bytes == 0 || packed.size() < bytes) return false;
  packed.remove_prefix(bytes);
  return true;
}

}  // namespace

std::optional<Contents> contents_of(const SealedObject& object) {
  std::string_view tree = object.tree();
  const auto& buffers = object.buffers();
  if (tree == kPlasmaTree) {
    if (buffers.size() != 2) return std::nullopt;
    return Contents{span_of(buffers[0]), span_of(buffers[1]), true};
  }
  // [1, node] or [2, inlined, node]; a node is [codec, version, params, buffers, children].
  if (tree.starts_with("\x93\x02")) {
    tree.remove_prefix(2);
    if (!skip_inlined(tree)) return std::nullopt;
  } else if (tree.starts_with("\x92\x01")) {
    tree.remove_prefix(2);
  } else {
    return std::nullopt;
  }
  const auto is_of = [&](std::string_view codec) {
    if (!tree.starts_with(codec)) return false;
    tree.remove_prefix(codec.size());
    return true;
  };
  const bool is_blob = is_of(kBlobNode);
  if (!is_blob && !is_of(kBytesNode) && !is_of(kByteArrayNode)) return std::nullopt;
  const auto inlined = take_bytes(tree);
  if (is_blob) {
    if (!inlined || tree != kOneBuffer || buffers.size() != 1) return std::nullopt;
    return Contents{span_of(buffers[0]), span_of(*inlined), false};
  }
  if (inlined) {
    if (tree != kNoBuffers) return std::nullopt;
    return Contents{span_of(*inlined), {}, false};
  }
  if (!tree.starts_with('\xc0') || tree.substr(1) != kOneBuffer || buffers.size() != 1) return std::nullopt;
  return Contents{span_of(buffers[0]), {}, false};
}

}  // namespace entrepot::plasma
