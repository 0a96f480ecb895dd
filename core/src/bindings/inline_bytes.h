// Small byte strings without the general codec machinery.
//
// The codec of `bytes` stores a short value inside the tree: a constant prefix, msgpack's header of a binary string,
// the bytes, a constant suffix. Python, which owns that codec, sets prefix and suffix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace entrepot::bindings {

class InlineBytes {
 public:
  InlineBytes() = default;
  InlineBytes(std::string prefix, std::string suffix) : prefix_(std::move(prefix)), suffix_(std::move(suffix)) {}

  // Returns the value of a tree of this form; nullopt for any other tree.
  [[nodiscard]] std::optional<std::string_view> value_of(std::string_view tree) const;
  // Builds the tree of a value.
  [[nodiscard]] std::string tree_of(std::string_view value) const;

 private:
  std::string prefix_;  // empty: not set, matches nothing
  std::string suffix_;
};

// The form that Python set; before that, one that matches nothing.
[[nodiscard]] InlineBytes& inline_bytes();

}  // namespace entrepot::bindings
