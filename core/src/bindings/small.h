// Small byte strings without the general codec machinery.
//
// The codec of `bytes` keeps a short value inside the tree: a prefix that is always the same, msgpack's header of a
// binary string, the bytes, a suffix that is always the same. Python, which owns that codec, says what the two are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace entrepot::bindings {

class SmallBytes {
 public:
  SmallBytes() = default;
  SmallBytes(std::string prefix, std::string suffix) : prefix_(std::move(prefix)), suffix_(std::move(suffix)) {}

  // The value of a tree of that form; none if it has another.
  [[nodiscard]] std::optional<std::string_view> value_of(std::string_view tree) const;
  // The tree of a value.
  [[nodiscard]] std::string tree_of(std::string_view value) const;

 private:
  std::string prefix_;  // empty: none was said, nothing fits
  std::string suffix_;
};

}  // namespace entrepot::bindings
