// The source of segments: the kernel in the daemon, private memory in tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/layout.h"

namespace entrepot {

// Guarded by the daemon's thread.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // Allocates a segment with all its pages. Store::provisioned() is called when it is done, possibly before this
  // returns, and perhaps again when its pages are of another kind. `urgent`: a request is waiting. The keeper holds the
  // memory before that call.
  virtual void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) = 0;

  // Returns pages of a segment to the machine.
  [[nodiscard]] virtual Status punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) = 0;

  // Frees the segment: all its pages are returned, even if it is still mapped. Also cancels provisioning in progress.
  virtual void drop(std::uint32_t segment, std::uint32_t generation) = 0;

  // Whether others need memory so much that the store gives back what it only keeps. Reads a few small files.
  [[nodiscard]] virtual bool machine_is_short() const = 0;

  // Whether Store::others_need_memory() is called from now on as soon as they do, as far as the source can tell.
  virtual void follow_pressure(bool on) = 0;

  // For adoption: whether memory of that size exists for this entry, and which of its pages were returned.
  struct Existing {
    bool exists = false;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;  // offset, length; sorted
  };
  [[nodiscard]] virtual Existing find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) = 0;
};

}  // namespace entrepot
