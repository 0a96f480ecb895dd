// Segments as mapped by the spill threads: once per generation of a segment.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/status.h"
#include "os/mapping.h"
#include "os/unique_fd.h"
#include "shm/blobs.h"

namespace entrepot {

// A blob's bytes; the mapping lives as long as this refers to it.
struct BlobBytes {
  std::shared_ptr<const os::Mapping> memory;
  std::byte* data = nullptr;
};

// Guarded by the daemon's thread.
class SegmentMappings {
 public:
  // Opens the segment's memory, writable; returns a new descriptor.
  using Open = std::function<Result<UniqueFd>(std::uint32_t segment, std::uint32_t generation)>;

  explicit SegmentMappings(Open open) : open_(std::move(open)) {}

  // kInternal if the place lies outside its segment.
  [[nodiscard]] Result<BlobBytes> at(const BlobLocation& place);

 private:
  struct Mapped {
    std::uint32_t generation = 0;
    std::shared_ptr<const os::Mapping> memory;
  };

  Open open_;
  std::map<std::uint32_t, Mapped> mapped_;  // by segment
};

}  // namespace entrepot
