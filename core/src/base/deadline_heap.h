// DeadlineHeap: who has to act when. A heap of deadlines in which each owner knows its place, so that a deadline is set,
// moved and removed by handle in logarithmic time, and nothing that was removed stays behind.
//
//   add ──▶ idle ──arm──▶ armed ──arm──▶ armed, at another time
//            ▲  ▲          └──disarm──▶ idle
//            └──┴── remove, from either
//
// Of equal deadlines, the one that was armed first comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace entrepot {

inline constexpr std::uint64_t kNoDeadline = UINT64_MAX;

// Guarded by its owner. Its memory grows in add() only, with the largest number of owners at a time.
template <class Owner>
class DeadlineHeap {
 public:
  using Handle = std::uint32_t;  // reused after remove()

  [[nodiscard]] Handle add(Owner owner) {
    if (!free_.empty()) {
      const Handle handle = free_.back();
      free_.pop_back();
      places_[handle].owner.emplace(std::move(owner));
      return handle;
    }
    places_.push_back({std::move(owner)});
    if (armed_.capacity() < places_.size()) {  // as many as places, so that neither arm() nor remove() allocates
      armed_.reserve(places_.capacity());
      free_.reserve(places_.capacity());
    }
    return static_cast<Handle>(places_.size() - 1);
  }
  void remove(Handle handle) {
    disarm(handle);
    places_[handle].owner.reset();
    free_.push_back(handle);
  }

  // Sets or moves the deadline; kNoDeadline removes it.
  void arm(Handle handle, std::uint64_t at_ns) {
    Place& place = places_[handle];
    if (at_ns == kNoDeadline) return disarm(handle);
    if (place.position == kIdle) {
      place.position = armed_.size();
      armed_.push_back({at_ns, next_order_++, handle});
      return move_up(place.position);
    }
    Armed& armed = armed_[place.position];
    if (armed.at_ns == at_ns) return;
    armed.at_ns = at_ns;
    armed.order = next_order_++;
    restore(place.position);
  }
  void disarm(Handle handle) {
    const std::size_t position = std::exchange(places_[handle].position, kIdle);
    if (position == kIdle) return;
    const Armed last = armed_.back();
    armed_.pop_back();
    if (position == armed_.size()) return;  // it was the last
    put(position, last);
    restore(position);
  }

  [[nodiscard]] bool is_used(Handle handle) const { return places_[handle].owner.has_value(); }
  [[nodiscard]] bool is_armed(Handle handle) const { return places_[handle].position != kIdle; }
  [[nodiscard]] std::uint64_t deadline_ns(Handle handle) const {
    return is_armed(handle) ? armed_[places_[handle].position].at_ns : kNoDeadline;
  }
  [[nodiscard]] Owner& owner(Handle handle) { return *places_[handle].owner; }
  [[nodiscard]] std::uint64_t next_ns() const { return armed_.empty() ? kNoDeadline : armed_.front().at_ns; }
  [[nodiscard]] std::optional<Handle> first_due(std::uint64_t now_ns) const {
    if (armed_.empty() || armed_.front().at_ns > now_ns) return std::nullopt;
    return armed_.front().handle;
  }
  [[nodiscard]] std::size_t size() const { return places_.size() - free_.size(); }
  [[nodiscard]] std::size_t armed() const { return armed_.size(); }

 private:
  static constexpr std::size_t kIdle = SIZE_MAX;
  struct Place {
    std::optional<Owner> owner;    // none: free
    std::size_t position = kIdle;  // in armed_
  };
  struct Armed {
    std::uint64_t at_ns = 0;
    std::uint64_t order = 0;  // of equal deadlines
    Handle handle = 0;
    [[nodiscard]] bool precedes(const Armed& other) const {
      return at_ns != other.at_ns ? at_ns < other.at_ns : order < other.order;
    }
  };

  void put(std::size_t position, const Armed& armed) {
    armed_[position] = armed;
    places_[armed.handle].position = position;
  }
  void move_up(std::size_t position) {
    const Armed moving = armed_[position];
    while (position > 0) {
      const std::size_t parent = (position - 1) / 2;
      if (!moving.precedes(armed_[parent])) break;
      put(position, armed_[parent]);
      position = parent;
    }
    put(position, moving);
  }
  void move_down(std::size_t position) {
    const Armed moving = armed_[position];
    while (true) {
      std::size_t child = 2 * position + 1;
      if (child >= armed_.size()) break;
      if (child + 1 < armed_.size() && armed_[child + 1].precedes(armed_[child])) ++child;
      if (!armed_[child].precedes(moving)) break;
      put(position, armed_[child]);
      position = child;
    }
    put(position, moving);
  }
  void restore(std::size_t position) {  // after the deadline there changed
    if (position > 0 && armed_[position].precedes(armed_[(position - 1) / 2])) return move_up(position);
    move_down(position);
  }

  std::vector<Place> places_;  // by handle
  std::vector<Handle> free_;   // handles
  std::vector<Armed> armed_;   // a heap: none precedes its parent
  std::uint64_t next_order_ = 0;
};

}  // namespace entrepot
