// Rpc: requests to the daemon as the parts of the client see them. Reconnecting is the implementer's matter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/connection.h"
#include "client/interrupt.h"
#include "net/protocol.h"
#include "os/clock.h"

namespace entrepot {

// For an answer that the daemon need not wait for, where the caller gave no time-out.
inline constexpr std::uint64_t kAnswerMs = 30'000;
// The daemon keeps time-outs itself, and says what it waited for; so long its answer may take on its way.
inline constexpr std::uint64_t kGraceMs = 1'000;

// How long a caller waits, from when this was made on, however often the question is asked again meanwhile.
struct Wait {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of milliseconds is one
  Wait(std::uint32_t wait_ms)
      : ms(wait_ms),
        end(wait_ms == 0 ? os::Deadline::never() : os::Deadline::after_ms(wait_ms)),
        limit(wait_ms == 0 ? os::Deadline::never() : os::Deadline::after_ms(std::uint64_t{wait_ms} + kGraceMs)) {}

  [[nodiscard]] std::uint32_t left_ms() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(end.remaining_ns() / 1'000'000U, ms));
  }

  std::uint32_t ms;  // 0: no time-out was given
  os::Deadline end;
  os::Deadline limit;  // after which the caller has waited enough, whoever is silent; never without a time-out
};

struct CallOptions {
  os::Deadline deadline = os::Deadline::after_ms(kAnswerMs);  // for the answer itself; reconnecting has its own limit
  os::Deadline limit = os::Deadline::never();                 // for all of it, reconnecting too: the caller's time-out
  Interrupt interrupt;
  Connection::Abandoned abandoned;
  // Sent on this connection or not at all: for what must not be sent again after a reconnect, because what it says
  // may not be true any more. Null: on whichever there is, as often as it takes.
  std::shared_ptr<Connection> only_on;
};

// For a request that the daemon may take `wait_ms` to answer, besides the time that any answer may take.
[[nodiscard]] inline CallOptions waiting(std::uint64_t wait_ms, const Interrupt& interrupt) {
  CallOptions options;
  options.deadline = os::Deadline::after_ms(wait_ms + kAnswerMs);
  options.interrupt = interrupt;
  return options;
}

// For a request that waits as long as its caller said; without a time-out, as above.
[[nodiscard]] inline CallOptions waiting(const Wait& wait, std::uint64_t otherwise_ms, const Interrupt& interrupt) {
  if (wait.ms == 0) return waiting(otherwise_ms, interrupt);
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

  // The connection in use, which may be broken; null where there is none.
  [[nodiscard]] virtual std::shared_ptr<Connection> link() = 0;
  // Waits until `broken` is replaced by another, or says why it cannot be.
  [[nodiscard]] virtual Status replace_link(const std::shared_ptr<Connection>& broken, const Interrupt& interrupt) = 0;

  template <class Reply, class Request>
  [[nodiscard]] Result<Reply> ask(MessageType type, const Request& request, const CallOptions& options,
                                  std::vector<UniqueFd>* fds = nullptr) {
    auto frame = call(type, to_wire(request), options);
    if (!frame.is_ok()) return frame.status();
    Reply reply;
    if (!from_wire(frame->body, reply)) return Status(Code::kInternal, "the daemon's answer cannot be read");
    if (fds != nullptr && frame->lost_fds()) return no_place_for_descriptors();
    if (fds != nullptr) *fds = std::move(frame->fds);
    return reply;
  }
};

}  // namespace entrepot
