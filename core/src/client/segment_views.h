// SegmentViews: this process's read-only mappings of segments, created on first use.
//
// A mapping lives as long as any object that uses it, so values stay readable whatever happens to the connection. A
// segment number may be reused for another memfd (another generation); it is then mapped in addition to the old one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "client/rpc.h"
#include "os/mapping.h"
#include "os/unique_fd.h"

namespace entrepot {

// The life of a segment's number.
struct SegmentKey {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const SegmentKey&) const = default;
};

struct SegmentView {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  UniqueFd fd;  // read-only; used for private mappings of parts
  os::Mapping mapping;

  [[nodiscard]] const std::byte* at(std::uint64_t offset) const { return mapping.data() + offset; }
};

class SegmentViews {
 public:
  static constexpr std::size_t kMappedTogether = 32;  // the daemon's answers fit into the socket

  explicit SegmentViews(Rpc& rpc) : rpc_(rpc) {}

  // Returns the mapping of this generation of the segment; requests the descriptor from the daemon if it is not mapped
  // yet, for as long as the caller waits.
  [[nodiscard]] Result<std::shared_ptr<const SegmentView>> get(const SegmentKey& key, const Wait& wait,
                                                               const Interrupt& interrupt);

  [[nodiscard]] std::shared_ptr<const SegmentView> find(const SegmentKey& key);  // null: it is not mapped
  // Maps up to kMappedTogether segments that are not mapped yet, whose descriptors it requests together, so that get()
  // returns them at once. What cannot be had in this way, because a segment is gone, say, or the daemon, is left to
  // get(), which tries again and reports it. kTimeout: at the end of the wait, or for an interrupt.
  [[nodiscard]] Status map_together(std::span<const SegmentKey> keys, const Wait& wait, const Interrupt& interrupt);

  // Locked around fork, so that the child gets a consistent table.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // The mapping of this segment's descriptor, as the daemon sent it, or of the one that another thread got meanwhile.
  [[nodiscard]] Result<std::shared_ptr<const SegmentView>> add(const SegmentKey& key, const SegmentReply& reply,
                                                               std::vector<UniqueFd> fds);

  Rpc& rpc_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const SegmentView>> views_;  // guarded by mutex_
};

}  // namespace entrepot
