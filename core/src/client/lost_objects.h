// LostObjects: which objects were in stores that died, by fingerprints of their IDs, so that a process can tell an object
// that is gone from one that never was.
//
//   unknown --its store died--> lost --found in the next store--> found again --that store died--> lost
//
// Bounded at 8 bytes for each of at most `limit` objects. Beyond that, objects of the oldest dead store are forgotten
// first, and no more of them than necessary; a forgotten one is only reported as not found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace entrepot {

class LostObjects {
 public:
  static constexpr std::size_t kLimit = 4U << 20;

  explicit LostObjects(std::size_t limit = kLimit) : limit_(limit) {}

  void add(std::vector<std::uint64_t> fingerprints);  // of all objects of a store that died; in any order
  [[nodiscard]] bool contains(std::uint64_t fingerprint) const;
  void note_found(std::uint64_t fingerprint);  // in the store again: if it is missing later, that store deleted it

  [[nodiscard]] bool empty() const { return stores_.empty(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  // More dead stores than this share a list, so that a search takes a bounded number of steps.
  static constexpr std::size_t kLists = 8;
  static constexpr std::uint64_t kFoundAgain = 1;  // flag in the lowest bit, which is not compared

  const std::size_t limit_;
  std::deque<std::vector<std::uint64_t>> stores_;  // oldest first; each sorted and not empty
  std::size_t size_ = 0;                           // of all of them
};

}  // namespace entrepot
