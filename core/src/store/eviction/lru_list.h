// LRU list: nodes ordered by last use. A treap with its links inside the nodes: insertion, removal and walking from
// either end take logarithmic time and allocate nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace entrepot {

// Node has `std::uint64_t used` (unique) and `std::uint32_t left` and `right`, which are managed by this class.
template <class Node>
class LruList {
 public:
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  void insert(std::vector<Node>& nodes, std::uint32_t node) {
    const std::uint64_t used = nodes[node].used;
    std::uint32_t* link = &root_;
    while (*link != kNone && weight(*link) > weight(node))
      link = used < nodes[*link].used ? &nodes[*link].left : &nodes[*link].right;
    std::uint32_t rest = *link;
    *link = node;
    std::uint32_t* older = &nodes[node].left;
    std::uint32_t* newer = &nodes[node].right;
    while (rest != kNone) {
      if (nodes[rest].used < used) {
        *older = rest;
        older = &nodes[rest].right;
        rest = *older;
      } else {
        *newer = rest;
        newer = &nodes[rest].left;
        rest = *newer;
      }
    }
    *older = kNone;
    *newer = kNone;
    ++size_;
  }

  // Precondition: the node is in this list.
  void erase(std::vector<Node>& nodes, std::uint32_t node) {
    std::uint32_t* link = &root_;
    while (*link != node)
      link = nodes[node].used < nodes[*link].used ? &nodes[*link].left : &nodes[*link].right;
    std::uint32_t older = nodes[node].left;
    std::uint32_t newer = nodes[node].right;
    while (older != kNone && newer != kNone) {
      if (weight(older) > weight(newer)) {
        *link = older;
        link = &nodes[older].right;
        older = *link;
      } else {
        *link = newer;
        link = &nodes[newer].left;
        newer = *link;
      }
    }
    *link = older != kNone ? older : newer;
    --size_;
  }

  [[nodiscard]] bool empty() const { return root_ == kNone; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // Iterates from one end to the other; the list must not change meanwhile.
  class Iterator {
   public:
    Iterator(const std::vector<Node>& nodes, const LruList& order, bool newest_first)
        : nodes_(&nodes), newest_first_(newest_first) {
      descend(order.root_);
    }
    // Returns kNone at the end.
    std::uint32_t next() {
      if (path_.empty()) return kNone;
      const std::uint32_t node = path_.back();
      path_.pop_back();
      descend(newest_first_ ? (*nodes_)[node].left : (*nodes_)[node].right);
      return node;
    }

   private:
    void descend(std::uint32_t node) {
      for (; node != kNone; node = newest_first_ ? (*nodes_)[node].right : (*nodes_)[node].left)
        path_.push_back(node);
    }
    const std::vector<Node>* nodes_;
    std::vector<std::uint32_t> path_;
    bool newest_first_;
  };

 private:
  static std::uint64_t weight(std::uint32_t node) { return mix64(node + 1ULL); }

  std::uint32_t root_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace entrepot
