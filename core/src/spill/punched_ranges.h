// Ranges of a file that have been returned to the disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace entrepot {

// Guarded by its owner.
class PunchedRanges {
 public:
  // Number of bytes of [offset, offset + bytes) that are holes.
  [[nodiscard]] std::uint64_t punched_bytes(std::uint64_t offset, std::uint64_t bytes) const {
    std::uint64_t punched = 0;
    for (auto hole = first_beyond(offset); hole != holes_.end() && hole->first < offset + bytes; ++hole)
      punched += std::min(offset + bytes, hole->first + hole->second) - std::max(offset, hole->first);
    return punched;
  }

  // Marks the range as allocated.
  void fill(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t end = offset + bytes;
    bytes_ -= punched_bytes(offset, bytes);
    for (auto hole = first_beyond(offset); hole != holes_.end() && hole->first < end;) {
      const auto [at, length] = *hole;
      hole = holes_.erase(hole);
      if (at < offset) holes_.emplace(at, offset - at);
      if (at + length > end) hole = holes_.emplace(end, at + length - end).first;
    }
  }

  // Marks the whole range as a hole.
  void add(std::uint64_t offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    fill(offset, bytes);
    holes_.emplace(offset, bytes);
    bytes_ += bytes;
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  // First hole that ends after `offset`.
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t>::const_iterator first_beyond(std::uint64_t offset) const {
    auto hole = holes_.upper_bound(offset);
    if (hole != holes_.begin() && std::prev(hole)->first + std::prev(hole)->second > offset) --hole;
    return hole;
  }

  std::map<std::uint64_t, std::uint64_t> holes_;  // offset -> length; disjoint
  std::uint64_t bytes_ = 0;
};

}  // namespace entrepot
