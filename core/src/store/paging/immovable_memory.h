// Immovable memory: what cannot be freed whatever else is evicted, and on whose behalf.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>

#include "shm/pins.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"

namespace entrepot {

// Each blob counts once, less those of its bytes that are covered.
struct ImmovableMemory {
  std::uint64_t own = 0;          // pinned by the requesting client
  std::uint64_t others = 0;       // pinned only by other clients
  std::uint64_t user_pinned = 0;  // kept in memory by a user's hint, and not pinned by any client
};

// `user_pinned`: the slots that users pinned to memory. `covered`: how many bytes of a blob are accounted for elsewhere;
// empty: none of any.
[[nodiscard]] ImmovableMemory immovable_memory(const ObjectCatalog& catalog, const BlobTable& blobs,
                                               const PinScanner& pins,
                                               const std::unordered_set<std::uint32_t>& user_pinned,
                                               std::uint32_t client,
                                               const std::function<std::uint64_t(std::uint32_t blob)>& covered = {});

}  // namespace entrepot
