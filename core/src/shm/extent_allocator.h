// ExtentAllocator: tracks which parts of a range (a segment, the record arena) are in use. All bookkeeping is in the
// daemon's private memory: the range itself holds only payload, so nothing that a client writes can mislead it.
//
// Best fit, lowest address among equals; neighbouring extents coalesce at once. Every operation is O(log n) in the
// number of free extents (an aligned allocation examines a bounded number of candidates before it takes one that is
// sure to fit).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/status.h"

namespace entrepot {

// Guarded by its owner's thread.
class ExtentAllocator {
 public:
  ExtentAllocator() = default;
  explicit ExtentAllocator(std::uint64_t bytes) { grow(bytes); }

  // Returns an offset that is a multiple of `align` (a power of two), or nullopt. `bytes` > 0.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t align = 1);

  // Allocates as much of the largest free extent as possible: up to `bytes` and at least `min_bytes` (both > 0), for
  // leases that take what is available. Returns (offset, length); length is a multiple of `align`.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> allocate_up_to(std::uint64_t bytes,
                                                                                      std::uint64_t min_bytes,
                                                                                      std::uint64_t align = 1);

  // Frees any part of an allocated range. kInternal, with nothing changed, if some of it is free already or out of
  // range.
  [[nodiscard]] Status free(std::uint64_t offset, std::uint64_t bytes);

  // Marks a given range as used, when state is rebuilt from the tables. kCorruptData, with nothing changed, if some of
  // it is in use or out of range.
  [[nodiscard]] Status reserve(std::uint64_t offset, std::uint64_t bytes);

  // Appends free space.
  void grow(std::uint64_t new_bytes);

  [[nodiscard]] bool is_free(std::uint64_t offset, std::uint64_t bytes) const;  // the whole range
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return bytes_ - free_bytes_; }
  [[nodiscard]] std::uint64_t largest_free() const { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }
  [[nodiscard]] std::size_t free_extents() const { return by_offset_.size(); }

  // Calls visit(offset, length) for every free extent, in order of offsets.
  template <class Visit>
  void for_each_free(Visit&& visit) const {
    for (const auto& [offset, length] : by_offset_)
      visit(offset, length);
  }

 private:
  using ByOffset = std::map<std::uint64_t, std::uint64_t>;

  void insert_extent(std::uint64_t offset, std::uint64_t length);
  void erase_extent(ByOffset::iterator extent);
  void take(ByOffset::iterator extent, std::uint64_t offset, std::uint64_t length);

  std::uint64_t bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
  ByOffset by_offset_;                                           // offset -> length
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_length_;  // (length, offset)
};

}  // namespace entrepot
