// Rpc: requests to the daemon, as seen by the parts of the client. The implementation handles reconnecting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/connection.h"
#include "client/interrupt.h"
#include "net/protocol.h"
#include "os/clock.h"

namespace entrepot {

// Time for an answer that the daemon can give at once, if the caller set no timeout.
inline constexpr std::uint64_t kAnswerMs = 30'000;
// Extra time for the answer: the daemon applies timeouts itself, and reports what it waited for.
inline constexpr std::uint64_t kGraceMs = 1'000;

// How long a caller waits in total, from construction, however often the request is repeated.
struct Wait {
  // NOLINTNEXTLINE(google-explicit-constructor): implicit conversion from milliseconds is intended
  Wait(std::uint32_t wait_ms)
      : ms(wait_ms),
        end(wait_ms == 0 ? os::Deadline::never() : os::Deadline::after_ms(wait_ms)),
        limit(wait_ms == 0 ? os::Deadline::never() : os::Deadline::after_ms(std::uint64_t{wait_ms} + kGraceMs)) {}

  // For an answer that the daemon can give at once: nothing is added to the deadline.
  [[nodiscard]] static Wait until(os::Deadline deadline) {
    Wait wait(kAnswerMs);
    wait.end = wait.limit = deadline;
    return wait;
  }

  [[nodiscard]] std::uint32_t remaining_ms() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(end.remaining_ns() / 1'000'000U, ms));
  }

  std::uint32_t ms;  // 0: no timeout
  os::Deadline end;
  os::Deadline limit;  // end of the wait even if nobody answers; never without a timeout
};

struct CallOptions {
  // Answered by then, or given up, a reconnect included; at a deadline that has passed, nothing is sent.
  [[nodiscard]] static CallOptions until(os::Deadline deadline, const Interrupt& interrupt) {
    CallOptions options;
    options.deadline = deadline;
    options.limit = deadline;
    options.interrupt = interrupt;
    return options;
  }

  os::Deadline deadline = os::Deadline::after_ms(kAnswerMs);  // for the answer; reconnecting has its own limit
  os::Deadline limit = os::Deadline::never();                 // the caller's timeout, including reconnects
  Interrupt interrupt;
  Connection::Abandoned abandoned;
  // Send on this connection or not at all: for requests that must not be repeated after a reconnect, because they may
  // no longer be true. Null: on any connection, as often as needed.
  std::shared_ptr<Connection> only_on;
};

// For a request that the daemon may take `wait_ms` to answer, in addition to the usual time.
[[nodiscard]] inline CallOptions wait_options(std::uint64_t wait_ms, const Interrupt& interrupt) {
  CallOptions options;
  options.deadline = os::Deadline::after_ms(wait_ms + kAnswerMs);
  options.interrupt = interrupt;
  return options;
}

// For a request that the daemon can answer at once, with the caller's own deadline, if it has one.
[[nodiscard]] inline CallOptions answer_options(std::optional<os::Deadline> deadline, const Interrupt& interrupt) {
  return deadline ? CallOptions::until(*deadline, interrupt) : wait_options(0, interrupt);
}

// For a request that the daemon can answer at once and that must not take effect after its caller gave up waiting for
// something else, too. The request carries this deadline.
[[nodiscard]] inline CallOptions answer_options(const Wait& wait, const Interrupt& interrupt) {
  const os::Deadline usual = os::Deadline::after_ms(kAnswerMs);
  return CallOptions::until(wait.limit.at_ns() < usual.at_ns() ? wait.limit : usual, interrupt);
}

// For a request that waits as long as its caller specified; without a timeout, as above.
[[nodiscard]] inline CallOptions wait_options(const Wait& wait, std::uint64_t otherwise_ms,
                                              const Interrupt& interrupt) {
  if (wait.ms == 0) return wait_options(otherwise_ms, interrupt);
  CallOptions options;
  options.limit = options.deadline = wait.limit;
  options.interrupt = interrupt;
  return options;
}

class Rpc {
 public:
  Rpc() = default;
  virtual ~Rpc() = default;
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;
  Rpc(Rpc&&) = delete;
  Rpc& operator=(Rpc&&) = delete;

  [[nodiscard]] virtual Result<Frame> call(MessageType type, std::span<const std::uint8_t> body,
                                           const CallOptions& options) = 0;
  virtual void post(MessageType type) = 0;

  // The current connection, which may be broken; null if there is none.
  [[nodiscard]] virtual std::shared_ptr<Connection> current_connection() = 0;
  // Waits until `broken` is replaced, or returns why it cannot be.
  [[nodiscard]] virtual Status wait_reconnected(const std::shared_ptr<Connection>& broken,
                                                const Interrupt& interrupt) = 0;

  template <class Reply, class Request>
  [[nodiscard]] Result<Reply> request_reply(MessageType type, const Request& request, const CallOptions& options,
                                            std::vector<UniqueFd>* fds = nullptr) {
    auto frame = call(type, to_wire(request), options);
    if (!frame.is_ok()) return frame.status();
    Reply reply;
    if (!from_wire(frame->body, reply)) return Status(Code::kInternal, "the daemon's response is malformed");
    if (fds != nullptr && frame->lost_fds()) return descriptors_lost_error();
    if (fds != nullptr) *fds = std::move(frame->fds);
    return reply;
  }
};

}  // namespace entrepot
