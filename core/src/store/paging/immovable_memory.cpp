#include "store/paging/immovable_memory.h"

namespace entrepot {

ImmovableMemory immovable_memory(const ObjectCatalog& catalog, const BlobTable& blobs, const PinScanner& pins,
                                 const std::unordered_set<std::uint32_t>& user_pinned, std::uint32_t client,
                                 const std::function<std::uint64_t(std::uint32_t blob)>& covered) {
  const DirectoryWriter& directory = catalog.directory();
  std::unordered_set<std::uint32_t> counted;
  const auto count = [&](std::uint32_t slot) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t blob : catalog.blobs_of(slot)) {
      if (!blobs.is_resident(blob) || !counted.insert(blob).second) continue;
      const BlobLocation place = blobs.place(blob);
      bytes += blob_extent_bytes(place.offset, place.length) - (covered ? covered(blob) : 0);
    }
    return bytes;
  };
  ImmovableMemory result;
  std::unordered_set<std::uint32_t> pinned_by_others;
  pins.for_each([&](std::uint32_t owner, const PinTarget& target) {
    if (!directory.is_live(target.slot, target.generation)) return;
    if (owner == client) {
      result.own += count(target.slot);
    } else {
      pinned_by_others.insert(target.slot);
    }
  });
  for (const std::uint32_t slot : pinned_by_others)
    result.others += count(slot);
  for (const std::uint32_t slot : user_pinned)
    result.user_pinned += count(slot);
  return result;
}

}  // namespace entrepot
