// Time: monotonic for waiting, Unix time for people and records.
#pragma once

#include <cstdint>

namespace entrepot::os {

[[nodiscard]] std::uint64_t monotonic_ns();
[[nodiscard]] std::uint64_t unix_ns();

// Sleeps between retries of an operation that cannot be waited for. Never call it in the event loop.
void pause_ms(std::uint64_t ms);

// A point in monotonic time at which a wait ends.
class Deadline {
 public:
  static Deadline after_ms(std::uint64_t ms);
  static Deadline never() { return Deadline(UINT64_MAX); }
  [[nodiscard]] bool is_never() const { return at_ns_ == UINT64_MAX; }
  [[nodiscard]] bool passed() const { return !is_never() && monotonic_ns() >= at_ns_; }
  [[nodiscard]] std::uint64_t at_ns() const { return at_ns_; }
  [[nodiscard]] std::uint64_t remaining_ns() const;  // 0 when passed, UINT64_MAX for never
  [[nodiscard]] int poll_ms() const;                 // for poll(2): rounded up, 0 when passed, -1 for never

 private:
  explicit Deadline(std::uint64_t at_ns) : at_ns_(at_ns) {}
  std::uint64_t at_ns_;
};

}  // namespace entrepot::os
