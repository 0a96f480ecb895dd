#include "bindings/inline_bytes.h"

#include <array>

namespace entrepot::bindings {
namespace {

// msgpack bin 8, bin 16 and bin 32, each with a big-endian length.
constexpr std::uint8_t kBin8 = 0xc4;
constexpr std::array<std::size_t, 3> kLengthBytes = {1, 2, 4};

}  // namespace

std::optional<std::string_view> InlineBytes::value_of(std::string_view tree) const {
  if (prefix_.empty() || !tree.starts_with(prefix_) || !tree.ends_with(suffix_)) return std::nullopt;
  if (tree.size() < prefix_.size() + suffix_.size() + 1) return std::nullopt;
  const std::string_view middle = tree.substr(prefix_.size(), tree.size() - prefix_.size() - suffix_.size());
  const std::size_t kind = static_cast<std::uint8_t>(middle[0]) - std::size_t{kBin8};
  if (kind >= kLengthBytes.size() || middle.size() < 1 + kLengthBytes[kind]) return std::nullopt;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes[kind]; ++i)
    length = (length << 8) | static_cast<std::uint8_t>(middle[1 + i]);
  const std::string_view value = middle.substr(1 + kLengthBytes[kind]);
  if (value.size() != length) return std::nullopt;
  return value;
}

std::string InlineBytes::tree_of(std::string_view value) const {
  const std::size_t kind = value.size() < 256 ? 0 : value.size() < 65'536 ? 1 : 2;
  std::string tree;
  tree.reserve(prefix_.size() + 5 + value.size() + suffix_.size());
  tree.append(prefix_);
  tree.push_back(static_cast<char>(kBin8 + kind));
  for (std::size_t i = kLengthBytes[kind]; i > 0; --i)
    tree.push_back(static_cast<char>(value.size() >> (8 * (i - 1))));
  tree.append(value);
  tree.append(suffix_);
  return tree;
}

}  // namespace entrepot::bindings
