// SegmentViews: this process's read-only mappings of segments, created on first use.
//
// A mapping lives as long as any object that uses it, so values stay readable whatever happens to the connection. A
// segment number may be reused for another memfd (another generation); it is then mapped in addition to the old one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/status.h"
#include "client/rpc.h"
#include "os/mapping.h"
#include "os/unique_fd.h"

namespace entrepot {

struct SegmentView {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  UniqueFd fd;  // read-only; used for private mappings of parts
  os::Mapping mapping;

  [[nodiscard]] const std::byte* at(std::uint64_t offset) const { return mapping.data() + offset; }
};

class SegmentViews {
 public:
  explicit SegmentViews(Rpc& rpc) : rpc_(rpc) {}

  // Returns the mapping of this generation of the segment; requests the descriptor from the daemon if it is not mapped
  // yet, for as long as the caller waits.
  [[nodiscard]] Result<std::shared_ptr<const SegmentView>> get(std::uint32_t segment, std::uint32_t generation,
                                                               const Wait& wait, const Interrupt& interrupt);

  // Locked around fork, so that the child gets a consistent table.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  [[nodiscard]] std::shared_ptr<const SegmentView> find(std::uint32_t segment, std::uint32_t generation);

  Rpc& rpc_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const SegmentView>> views_;  // guarded by mutex_
};

}  // namespace entrepot
