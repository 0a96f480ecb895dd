// SegmentViews: the read-only mappings of segments that this process has, mapped at first need.
//
// A mapping lives for as long as an object that uses it, so values stay readable whatever becomes of the connection. A
// number can come back with another memfd behind it (another generation); then the new one is mapped beside the old.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/status.h"
#include "base/unique_fd.h"
#include "client/rpc.h"
#include "os/mapping.h"

namespace entrepot {

struct SegmentView {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  UniqueFd fd;  // read-only; private mappings of parts are made from it
  os::Mapping mapping;

  [[nodiscard]] const std::byte* at(std::uint64_t offset) const { return mapping.data() + offset; }
};

class SegmentViews {
 public:
  explicit SegmentViews(Rpc& rpc) : rpc_(rpc) {}

  // The mapping of that generation of the segment, asked from the daemon if it is not there yet.
  [[nodiscard]] Result<std::shared_ptr<const SegmentView>> get(std::uint32_t segment, std::uint32_t generation,
                                                               const Interrupt& interrupt);

  // Around fork, so that the child finds a table that nobody was changing.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  [[nodiscard]] std::shared_ptr<const SegmentView> find(std::uint32_t segment, std::uint32_t generation);

  Rpc& rpc_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const SegmentView>> views_;  // guarded by mutex_
};

}  // namespace entrepot
