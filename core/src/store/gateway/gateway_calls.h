// GatewayCalls: calls of clients to the store's gateway, which is a client too, and the gateway's answers.
//
// The gateway:
//
//   none ──serve──▶ serving ──its connection ended──▶ gone ──serve──▶ serving
//    ▲                │ │                               └──10 s──▶ silent
//    └───withdraw─────┘ └──no request of it for 10 s──▶ silent ──any request of it, or serve by another──▶ serving
//
// A restarted daemon whose predecessor had a gateway begins with `gone`.
//
// A call:
//
//   queued ──the gateway asks──▶ given ──it answers──▶ answered
//     ▲                            └──another gateway serves──▶ queued
//     └── from either: all objects it names are sealed, or its deadline ──▶ answered
//                      its gateway is silent, or gone for 10 s ──▶ answered: kStoreUnavailable
//                      its connection ends ──▶ dropped, unanswered
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/deadline_heap.h"
#include "base/id.h"
#include "base/status.h"
#include "store/types.h"

namespace entrepot {

struct CallSpec {
  std::string operation;
  std::vector<IdBytes> ids;
  std::string payload;
};
struct CallToAnswer {
  std::uint64_t number = 0;
  const CallSpec* spec = nullptr;  // valid until the next request
  std::uint64_t remaining_ms = 0;
};
using CallDone = std::function<void(const Result<std::string>& payload)>;
using NextCallsDone = std::function<void(const std::vector<CallToAnswer>& calls)>;

// Guarded by the daemon's thread. Callbacks run when the table is done with a request, so they may issue others.
class GatewayCalls {
 public:
  static constexpr std::uint64_t kSilentNs = 10'000'000'000;
  static constexpr std::uint64_t kMaxPollMs = 2'000;
  static constexpr std::size_t kMaxCallsOfPoll = 16;
  static constexpr std::size_t kMaxCalls = 10'000;  // at a time; a call more is refused with kStoreFull

  // Numbers start where no earlier daemon's do, so that no answer to an earlier one's call is taken for one of a call here.
  explicit GatewayCalls(const Clock& clock) : clock_(&clock), last_number_(clock.monotonic_ns()) {}
  GatewayCalls(const GatewayCalls&) = delete;
  GatewayCalls& operator=(const GatewayCalls&) = delete;

  // --- of the gateway; kAccessDenied for any other connection
  [[nodiscard]] Status serve(std::uint64_t owner, std::string_view label);  // kObjectExists
  [[nodiscard]] Status withdraw(std::uint64_t owner);                       // it stops, and no other one will come
  void next(std::uint64_t owner, std::size_t max_calls, std::uint64_t timeout_ms, NextCallsDone done,
            const std::function<void(const Status&)>& refuse);
  [[nodiscard]] Status answer(std::uint64_t owner, std::uint64_t number, Result<std::string> payload);

  // --- of its clients. `missing`: those of the call's objects that are not sealed here.
  void call(std::uint64_t owner, CallSpec spec, std::unordered_set<IdBytes, IdHash> missing, std::uint64_t timeout_ms,
            CallDone done);

  // Before anything else, in a daemon whose predecessor had a gateway: it has 10 s to come back.
  void expect_back();

  // --- events
  void sealed(const IdBytes& id);
  void connection_ended(std::uint64_t owner);
  void answer_overdue(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_deadline_ns() const;

  // Whether a call is answered by a gateway, or may be: one that is gone has 10 s to come back.
  [[nodiscard]] bool is_expected() const { return !label_.empty() && !is_silent(clock_->monotonic_ns()); }
  [[nodiscard]] std::string_view label() const { return label_; }  // of the last gateway; empty: none
  [[nodiscard]] std::size_t waiting() const { return calls_.size(); }

 private:
  struct Call {
    std::uint64_t owner = 0;
    CallSpec spec;
    std::unordered_set<IdBytes, IdHash> missing;  // empty from the start: it waits for the gateway only
    CallDone done;
    DeadlineHeap<std::uint64_t>::Handle deadline = 0;
  };
  struct Poll {
    std::size_t max_calls = 0;
    std::uint64_t deadline_ns = 0;
    NextCallsDone done;
  };
  using Calls = std::map<std::uint64_t, Call>;

  [[nodiscard]] Status check_gateway(std::uint64_t owner) const;
  [[nodiscard]] bool is_silent(std::uint64_t now_ns) const { return !poll_ && now_ns >= heard_ns_ + kSilentNs; }
  [[nodiscard]] Status unavailable() const;
  [[nodiscard]] CallDone take(Calls::iterator it);
  void refuse_all(const Status& why);
  void hand_out();
  void answer_poll();

  const Clock* clock_;
  std::optional<std::uint64_t> gateway_;  // its connection
  std::string label_;                     // of the last gateway; empty: none
  std::uint64_t heard_ns_ = 0;            // when the gateway last made a request, was answered one, or was connected
  std::optional<Poll> poll_;              // the gateway waits for calls
  std::uint64_t last_number_;
  Calls calls_;                      // by number
  std::deque<std::uint64_t> queue_;  // numbers of calls that the gateway was not given; some may be gone
  std::unordered_multimap<IdBytes, std::uint64_t, IdHash> by_missing_;
  DeadlineHeap<std::uint64_t> deadlines_;  // of the calls
};

}  // namespace entrepot
