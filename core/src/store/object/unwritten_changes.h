// UnwrittenChanges: which names and IDs the manifest on disk still has as they were, and the record that corrects it.
//
// Found by a hash. Two that share one wait for each other, which costs a wait of milliseconds and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

namespace entrepot {

// Guarded by the daemon's thread. Records are numbered from 1 on. One that is added after a later one is dropped with it.
class UnwrittenChanges {
 public:
  void add(std::uint64_t key, std::uint64_t record) {
    std::uint64_t& last = records_[key];
    last = std::max(last, record);
    order_.emplace_back(record, key);
  }
  void add_all(std::uint64_t record) { all_ = std::max(all_, record); }  // of every key, known or not

  // 0: nothing of it is unwritten.
  [[nodiscard]] std::uint64_t of(std::uint64_t key) const {
    const auto last = records_.find(key);
    return last == records_.end() ? all_ : std::max(all_, last->second);
  }
  [[nodiscard]] bool empty() const { return all_ == 0 && records_.empty(); }

  void written(std::uint64_t record) {
    if (all_ <= record) all_ = 0;
    for (; !order_.empty() && order_.front().first <= record; order_.pop_front()) {
      const auto last = records_.find(order_.front().second);
      if (last != records_.end() && last->second <= record) records_.erase(last);
    }
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> records_;   // by key: the last one
  std::deque<std::pair<std::uint64_t, std::uint64_t>> order_;  // (record, key)
  std::uint64_t all_ = 0;
};

}  // namespace entrepot
