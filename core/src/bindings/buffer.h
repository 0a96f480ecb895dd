// Buffer: exposes an object's bytes to Python by the buffer protocol, and keeps their memory alive.
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
  std::shared_ptr<SealedObject> object;        // pinned while the bytes are the store's
  std::shared_ptr<const WritableBlob> memory;  // of an object that is being built
  os::Mapping private_image;                   // copy="on_write"
  std::unique_ptr<std::byte, FreeBytes> own;   // copy="always", and small buffers with copy="on_write"
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  bool writable = false;
};

enum class CopyMode : int { kNever = 0, kOnWrite = 1, kAlways = 2 };

// Returns buffer `index` of the object. Call with the GIL held; large copies release it.
[[nodiscard]] Buffer make_buffer(const std::shared_ptr<SealedObject>& object, std::size_t index, CopyMode mode);

}  // namespace entrepot::bindings
