// Where the store's segments come from: the kernel in the daemon, private memory in tests.
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

  // Makes the memory of a segment, with all its pages there. Answered later, or from within the call, by
  // Store::provisioned(). `urgent`: somebody waits for it. The keeper holds the memory before the answer comes.
  virtual void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) = 0;

  // Gives pages of a segment back to the machine.
  [[nodiscard]] virtual Status punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) = 0;

  // The segment is no more: all its pages go back, whoever still maps it. Also ends a provisioning under way.
  virtual void drop(std::uint32_t segment, std::uint32_t generation) = 0;

  // Adoption: is there memory of that size behind this entry, and which of its pages went back to the machine?
  struct Found {
    bool there = false;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;  // offset, length; in order
  };
  [[nodiscard]] virtual Found find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) = 0;
};

}  // namespace entrepot
