// WaitList: requests that wait, in the order in which they came, and by their deadlines.
//
// Finding the next deadline and who is overdue costs the same however many wait: each waiting request can cause a turn
// of the event loop, which looks for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "base/deadline_heap.h"

namespace entrepot {

// `Request` has a deadline_ns, which does not change while it waits. Guarded by the daemon's thread.
template <class Request>
class WaitList {
 public:
  class Entry : public Request {
   public:
    explicit Entry(Request request) : Request(std::move(request)) {}

   private:
    friend class WaitList;
    std::uint32_t handle_ = 0;  // in by_deadline_
  };
  using Iterator = typename std::list<Entry>::iterator;  // valid until that request is taken

  WaitList() = default;
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;

  Iterator add(Request request) {
    entries_.emplace_back(std::move(request));
    const Iterator added = std::prev(entries_.end());
    added->handle_ = by_deadline_.add(added);
    by_deadline_.arm(added->handle_, added->deadline_ns);
    return added;
  }
  [[nodiscard]] Request take(Iterator it) {
    by_deadline_.remove(it->handle_);
    Request request = std::move(*it);
    entries_.erase(it);
    return request;
  }
  // Takes all for which the predicate holds, in the order in which they came.
  template <class Predicate>
  [[nodiscard]] std::vector<Request> take_if(const Predicate& predicate) {
    std::vector<Request> taken;
    for (Iterator it = entries_.begin(); it != entries_.end();) {
      const Iterator next = std::next(it);
      if (predicate(std::as_const(*it))) taken.push_back(take(it));
      it = next;
    }
    return taken;
  }
  // The one that is overdue for longest.
  [[nodiscard]] std::optional<Iterator> overdue(std::uint64_t now_ns) {
    const auto handle = by_deadline_.first_due(now_ns);
    return handle ? std::optional<Iterator>(by_deadline_.owner(*handle)) : std::nullopt;
  }
  [[nodiscard]] std::uint64_t next_deadline_ns() const { return by_deadline_.next_ns(); }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] Iterator begin() { return entries_.begin(); }
  [[nodiscard]] Iterator end() { return entries_.end(); }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() const { return entries_.end(); }

 private:
  std::list<Entry> entries_;
  DeadlineHeap<Iterator> by_deadline_;  // allocates only when more wait than ever before
};

}  // namespace entrepot
