// Pin: one pin of this process on an object, removed when its owner is destroyed.
#pragma once

#include <cstdint>
#include <utility>

namespace entrepot {

class PinnedSet;

// Made without allocation, lock or system call. It must end before its PinnedSet. Guarded by its owner; ending different
// pins is safe from any thread.
class Pin {
 public:
  Pin() = default;  // none
  Pin(Pin&& other) noexcept : set_(std::exchange(other.set_, nullptr)), position_(other.position_) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this == &other) return *this;
    remove();
    set_ = std::exchange(other.set_, nullptr);
    position_ = other.position_;
    return *this;
  }
  ~Pin() { remove(); }

  [[nodiscard]] explicit operator bool() const { return set_ != nullptr; }
  [[nodiscard]] std::uint32_t position() const { return position_; }  // in the pin table
  // The caller removes the pin from the table, or leaves it to another process.
  std::uint32_t detach() {
    set_ = nullptr;
    return position_;
  }
  void remove();

 private:
  friend class PinnedSet;
  Pin(PinnedSet& set, std::uint32_t position) : set_(&set), position_(position) {}

  PinnedSet* set_ = nullptr;  // null: nothing is pinned
  std::uint32_t position_ = 0;
};

}  // namespace entrepot
