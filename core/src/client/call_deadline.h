// CallDeadline: a caller's timeout that covers several requests of one thread, of which not all are its own: while it
// exists, no request of this thread is waited for beyond it, nor does a put wait longer for memory. Requests that are
// sent on one connection only are excepted: they say what has become of others, and have short deadlines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "client/rpc.h"

namespace entrepot {

class CallDeadline {
 public:
  explicit CallDeadline(const Wait& wait) : before_(std::exchange(innermost_, this)), wait_(wait) {}
  ~CallDeadline() { innermost_ = before_; }
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;
  CallDeadline(CallDeadline&&) = delete;
  CallDeadline& operator=(CallDeadline&&) = delete;

  // `deadline`, or the end of this thread's wait if that comes first.
  [[nodiscard]] static os::Deadline bounded(os::Deadline deadline) {
    for (const CallDeadline* each = innermost_; each != nullptr; each = each->before_)
      if (each->wait_.limit.at_ns() < deadline.at_ns()) deadline = each->wait_.limit;
    return deadline;
  }
  // The same for a time that the daemon is to wait. 0 stays 0: it is not to wait.
  [[nodiscard]] static std::uint32_t bounded_ms(std::uint32_t wait_ms) {
    for (const CallDeadline* each = innermost_; each != nullptr; each = each->before_)
      if (each->wait_.ms != 0) wait_ms = std::min(wait_ms, each->wait_.remaining_ms());
    return wait_ms;
  }

 private:
  inline static thread_local const CallDeadline* innermost_ = nullptr;

  const CallDeadline* before_;  // of this thread, around this one
  Wait wait_;                   // 0: not bounded
};

}  // namespace entrepot
