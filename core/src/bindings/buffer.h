// Buffer: bytes of an object for Python, by the buffer protocol; keeps what it shows alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "bindings/common.h"
#include "client/client.h"

namespace entrepot::bindings {

struct FreeBytes {
  void operator()(std::byte* data) const { std::free(data); }
};

struct Buffer {
  std::shared_ptr<SealedObject> object;       // pinned as long as the bytes are the store's
  os::Mapping private_image;                  // copy="on_write"
  std::unique_ptr<std::byte, FreeBytes> own;  // copy="always", and small ones of copy="on_write"
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  bool writable = false;
};

enum class CopyMode : int { kNever = 0, kOnWrite = 1, kAlways = 2 };

// Buffer `index` of the object. The GIL is held, and released while much is copied.
[[nodiscard]] Buffer make_buffer(const std::shared_ptr<SealedObject>& object, std::size_t index, CopyMode mode);

}  // namespace entrepot::bindings
