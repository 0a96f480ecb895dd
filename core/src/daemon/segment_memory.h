// The segments as the spilling threads see them: mapped once for each life of a segment's number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/mapping.h"
#include "shm/blobs.h"

namespace entrepot {

// A blob's bytes; the mapping stays as long as somebody holds it.
struct BlobBytes {
  std::shared_ptr<const os::Mapping> memory;
  std::byte* data = nullptr;
};

// Guarded by the daemon's thread.
class SegmentMemory {
 public:
  // The segment's memory, writable; a descriptor of our own.
  using Open = std::function<Result<UniqueFd>(std::uint32_t segment, std::uint32_t generation)>;

  explicit SegmentMemory(Open open) : open_(std::move(open)) {}

  // kInternal if the place lies outside of its segment.
  [[nodiscard]] Result<BlobBytes> at(const BlobPlace& place);

 private:
  struct Mapped {
    std::uint32_t generation = 0;
    std::shared_ptr<const os::Mapping> memory;
  };

  Open open_;
  std::map<std::uint32_t, Mapped> mapped_;  // by segment
};

}  // namespace entrepot
