// PutPlan: an object being put; shared by put.cpp, value_put.cpp, writable_blob.cpp and object_builder.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/align.h"
#include "client/client.h"

namespace entrepot {

struct Client::PutPlan {
  std::size_t index = 0;  // of the item and its result
  const PutItem* item = nullptr;
  SealObject seal;
  std::vector<std::uint8_t> shared;  // per buffer: 1 if it refers to a sealed blob or to a part
  std::uint64_t copy_bytes = 0;      // bytes to copy into leased memory
  std::vector<LeasedRange> ranges;   // leased for it
  // Memory of an object builder, in which buffers are sealed where they are (client/object_builder.h).
  std::span<const std::shared_ptr<WritableBlob>> parts;
  std::vector<std::uint32_t> part_of;       // per buffer: index in `parts`, or kNoPart; empty without parts
  std::vector<std::uint32_t> blob_of_part;  // per part: index in seal.blobs, or kNoPart: nothing of it is sealed
  static constexpr std::uint32_t kNoPart = 0xffff'ffffU;
  // Values that are sealed where they are (client/value_memory.h), unless all is to be copied.
  bool copies_values = false;
  struct Value {
    std::byte* start = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;  // by buffers of this object
    bool is_frozen = false;
    LeasedRange range{};  // once frozen

    // Otherwise what the object uses of it is copied.
    [[nodiscard]] bool is_sealed_in_place() const { return used >= bytes / 2; }
  };
  std::vector<Value> values;
  std::uint32_t pin_position = kNoPin;  // reserved for the object, if values of it are frozen
  std::vector<std::uint32_t> value_of;  // per buffer: index in `values`, or kNoValue; empty: none is part of a value
  static constexpr std::uint32_t kNoValue = 0xffff'ffffU;
  [[nodiscard]] bool is_in_value(std::size_t buffer) const { return !value_of.empty() && value_of[buffer] != kNoValue; }
  [[nodiscard]] bool is_copied(std::size_t buffer) const { return shared[buffer] == 0 && !is_in_value(buffer); }
};

}  // namespace entrepot
