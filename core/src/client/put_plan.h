// PutPlan: an object being put; shared by put.cpp and writable_blob.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/align.h"
#include "client/client.h"

namespace entrepot {

struct Client::PutPlan {
  std::size_t index = 0;  // of the item and its result
  const PutItem* item = nullptr;
  SealObject seal;
  std::vector<std::uint8_t> shared;  // per buffer: 1 if it refers to a sealed blob
  std::uint64_t copy_bytes = 0;      // bytes to copy into leased memory
  std::vector<LeasedRange> ranges;   // one for each of seal.blobs
};

}  // namespace entrepot
