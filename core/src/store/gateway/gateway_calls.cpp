#include "store/gateway/gateway_calls.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

}  // namespace

// ---- the gateway ----

Status GatewayCalls::serve(std::uint64_t owner, std::string_view label) {
  const std::uint64_t now = clock_->monotonic_ns();
  if (gateway_ && *gateway_ != owner && !is_silent(now)) {
    return {Code::kObjectExists, concat("this store has a gateway already: ", label_)};
  }
  gateway_ = owner;
  label_ = label;
  heard_ns_ = now;
  poll_.reset();
  queue_.clear();
  for (const auto& [number, call] : calls_)
    queue_.push_back(number);
  return Status::ok();
}

void GatewayCalls::expect_back() {
  label_ = "known to the daemon before its restart";
  heard_ns_ = clock_->monotonic_ns();
}

Status GatewayCalls::withdraw(std::uint64_t owner) {
  RETURN_IF_ERROR(check_gateway(owner));
  gateway_.reset();
  poll_.reset();
  label_.clear();
  refuse_all(unavailable());
  return Status::ok();
}

void GatewayCalls::refuse_all(const Status& why) {
  Calls refused = std::move(calls_);
  calls_.clear();
  by_missing_.clear();
  queue_.clear();
  for (auto& [number, call] : refused)
    deadlines_.remove(call.deadline);
  for (auto& [number, call] : refused)
    call.done(why);
}

Status GatewayCalls::check_gateway(std::uint64_t owner) const {
  if (gateway_ == owner) return Status::ok();
  return {Code::kAccessDenied, gateway_
                                   ? concat("this connection is not the store's gateway any more: ", label_, " is")
                                   : std::string("this connection is not the store's gateway: ServeGateway first")};
}

void GatewayCalls::next(std::uint64_t owner, std::size_t max_calls, std::uint64_t timeout_ms, NextCallsDone done,
                        const std::function<void(const Status&)>& refuse) {
  if (const Status allowed = check_gateway(owner); !allowed.is_ok()) return refuse(allowed);
  if (poll_) return refuse(Status(Code::kInvalidArgument, "the gateway waits for calls already"));
  heard_ns_ = clock_->monotonic_ns();
  poll_ = Poll{std::clamp<std::size_t>(max_calls, 1, kMaxCallsOfPoll),
               heard_ns_ + std::min(timeout_ms, kMaxPollMs) * kNsPerMs, std::move(done)};
  hand_out();
  if (poll_ && timeout_ms == 0) answer_poll();
}

// Answers the gateway if there is something for it.
void GatewayCalls::hand_out() {
  while (!queue_.empty() && !calls_.contains(queue_.front()))
    queue_.pop_front();
  if (poll_ && !queue_.empty()) answer_poll();
}

void GatewayCalls::answer_poll() {
  const Poll poll = *std::exchange(poll_, std::nullopt);
  const std::uint64_t now = clock_->monotonic_ns();
  heard_ns_ = now;
  std::vector<CallToAnswer> given;
  while (!queue_.empty() && given.size() < poll.max_calls) {
    const std::uint64_t number = queue_.front();
    queue_.pop_front();
    const auto call = calls_.find(number);
    if (call == calls_.end()) continue;
    const std::uint64_t deadline = deadlines_.deadline_ns(call->second.deadline);
    given.push_back({number, &call->second.spec, (deadline - std::min(now, deadline)) / kNsPerMs});
  }
  poll.done(given);
}

Status GatewayCalls::answer(std::uint64_t owner, std::uint64_t number, Result<std::string> payload) {
  RETURN_IF_ERROR(check_gateway(owner));
  heard_ns_ = clock_->monotonic_ns();
  const auto it = calls_.find(number);
  if (it != calls_.end()) take(it)(payload);
  return Status::ok();
}

// ---- calls ----

Status GatewayCalls::unavailable() const {
  if (label_.empty()) {
    return {Code::kStoreUnavailable, "this store has no gateway to other stores: start it with --cluster"};
  }
  const std::string_view what = gateway_ ? "has not responded for 10 s" : "has ended, and no other one was started";
  return {Code::kStoreUnavailable, concat("the store's gateway (", label_, ") ", what), true};
}

void GatewayCalls::call(std::uint64_t owner, CallSpec spec, std::unordered_set<IdBytes, IdHash> missing,
                        std::uint64_t timeout_ms, CallDone done) {
  if (!spec.ids.empty() && missing.empty()) return done(std::string());
  const std::uint64_t now = clock_->monotonic_ns();
  if (!is_expected()) return done(unavailable());
  if (calls_.size() >= kMaxCalls) {
    return done(Status(
        Code::kStoreFull,
        concat("the store's gateway (", label_, ") has ", kMaxCalls, " calls to answer: try again later"), true));
  }
  const std::uint64_t number = ++last_number_;
  for (const IdBytes& id : missing)
    by_missing_.emplace(id, number);
  const auto deadline = deadlines_.add(number);
  deadlines_.arm(deadline, now + timeout_ms * kNsPerMs);
  calls_.emplace(number, Call{owner, std::move(spec), std::move(missing), std::move(done), deadline});
  queue_.push_back(number);
  hand_out();
}

CallDone GatewayCalls::take(Calls::iterator it) {
  for (const IdBytes& id : it->second.missing) {
    const auto [first, last] = by_missing_.equal_range(id);
    const auto entry = std::find_if(first, last, [&](const auto& each) { return each.second == it->first; });
    if (entry != last) by_missing_.erase(entry);
  }
  deadlines_.remove(it->second.deadline);
  CallDone done = std::move(it->second.done);
  calls_.erase(it);
  return done;
}

void GatewayCalls::sealed(const IdBytes& id) {
  const auto [first, last] = by_missing_.equal_range(id);
  if (first == last) return;
  std::vector<std::uint64_t> numbers;
  for (auto entry = first; entry != last; ++entry)
    numbers.push_back(entry->second);
  by_missing_.erase(first, last);
  for (const std::uint64_t number : numbers) {
    const auto it = calls_.find(number);
    if (it == calls_.end()) continue;  // ended by a callback
    it->second.missing.erase(id);
    if (it->second.missing.empty()) take(it)(std::string());
  }
}

// ---- events ----

void GatewayCalls::connection_ended(std::uint64_t owner) {
  for (auto it = calls_.begin(); it != calls_.end();) {
    const auto next = std::next(it);
    if (it->second.owner == owner) static_cast<void>(take(it));
    it = next;
  }
  if (gateway_ != owner) return;
  gateway_.reset();
  poll_.reset();
  heard_ns_ = clock_->monotonic_ns();  // another one has 10 s to come
}

void GatewayCalls::answer_overdue(std::uint64_t now_ns) {
  while (const auto due = deadlines_.first_due(now_ns)) {
    const auto it = calls_.find(deadlines_.owner(*due));
    take(it)(Status(Code::kTimeout, concat("the store's gateway (", label_, ") did not answer in time"), true));
  }
  if (poll_ && now_ns >= poll_->deadline_ns) answer_poll();
  if (!calls_.empty() && is_silent(now_ns)) refuse_all(unavailable());
}

std::uint64_t GatewayCalls::next_deadline_ns() const {
  if (poll_) return std::min(deadlines_.next_ns(), poll_->deadline_ns);
  return calls_.empty() ? deadlines_.next_ns() : std::min(deadlines_.next_ns(), heard_ns_ + kSilentNs);
}

}  // namespace entrepot
