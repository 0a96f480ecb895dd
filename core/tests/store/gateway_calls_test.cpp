#include "store/gateway/gateway_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness.h"

namespace entrepot {
using testing::numbered_id;

namespace {

constexpr std::uint64_t kGateway = 1;
constexpr std::uint64_t kOther = 2;
constexpr std::uint64_t kCaller = 10;
constexpr std::uint64_t kMs = 1'000'000;

class Time : public Clock {
 public:
  [[nodiscard]] std::uint64_t monotonic_ns() const override { return now_ns; }
  [[nodiscard]] std::uint64_t unix_ns() const override { return now_ns; }
  std::uint64_t now_ns = 1'000'000'000'000;
};

class GatewayCallsTest : public ::testing::Test {
 protected:
  using Answer = std::shared_ptr<std::optional<Result<std::string>>>;

  Answer call(const std::vector<IdBytes>& missing = {}, std::uint64_t timeout_ms = 60'000,
              std::uint64_t owner = kCaller) {
    auto answer = std::make_shared<std::optional<Result<std::string>>>();
    calls.call(owner, {"fetch", missing, "payload"}, {missing.begin(), missing.end()}, timeout_ms,
               [answer](const Result<std::string>& payload) {
                 EXPECT_FALSE(answer->has_value()) << "answered twice";
                 answer->emplace(payload);
               });
    return answer;
  }
  // What the gateway is given at once; none: it waits, or was refused.
  std::optional<std::vector<std::uint64_t>> next(std::size_t max_calls = 16, std::uint64_t timeout_ms = 1000,
                                                 std::uint64_t owner = kGateway) {
    given.reset();
    refused = Status::ok();
    calls.next(
        owner, max_calls, timeout_ms,
        [this](const std::vector<CallToAnswer>& got) {
          given.emplace();
          for (const CallToAnswer& each : got)
            given->push_back(each.number - first);
        },
        [this](const Status& why) { refused = why; });
    return given;
  }
  void pass(std::uint64_t ms) {
    time.now_ns += ms * kMs;
    calls.answer_overdue(time.now_ns);
  }

  Time time;
  const std::uint64_t first = time.now_ns;  // calls are numbered from here
  GatewayCalls calls{time};
  std::optional<std::vector<std::uint64_t>> given;
  Status refused;
};

TEST_F(GatewayCallsTest, ACallReachesTheGatewayAndItsAnswerTheCaller) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  EXPECT_FALSE(next());
  const Answer answer = call();
  ASSERT_EQ(given, std::vector<std::uint64_t>{1});
  EXPECT_FALSE(*answer);
  EXPECT_TRUE(calls.answer(kGateway, first + 1, std::string("found")).is_ok());
  ASSERT_TRUE(*answer && (*answer)->is_ok());
  EXPECT_EQ(***answer, "found");
  EXPECT_TRUE(calls.answer(kGateway, first + 1, std::string("again")).is_ok());  // no effect
  EXPECT_EQ(calls.waiting(), 0U);
}

TEST_F(GatewayCallsTest, WithoutAGatewayACallIsRefused) {
  EXPECT_FALSE(calls.is_expected());
  const Answer answer = call();
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->code(), Code::kStoreUnavailable);
  EXPECT_FALSE((*answer)->status().retryable());
}

TEST_F(GatewayCallsTest, ACallIsAnsweredWhenAllItsObjectsAreSealed) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer both = call({numbered_id(1), numbered_id(2)});
  const Answer second_only = call({numbered_id(2)});
  calls.sealed(numbered_id(2));
  EXPECT_FALSE(*both);
  ASSERT_TRUE(*second_only && (*second_only)->is_ok());
  calls.sealed(numbered_id(1));
  ASSERT_TRUE(*both && (*both)->is_ok());
  EXPECT_EQ(***both, "");
  EXPECT_FALSE(next());  // neither is left for the gateway
}

TEST_F(GatewayCallsTest, ACallEndsAtItsDeadline) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer answer = call({numbered_id(1)}, 500);
  EXPECT_EQ(calls.next_deadline_ns(), time.now_ns + 500 * kMs);
  pass(499);
  EXPECT_FALSE(*answer);
  pass(1);
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->code(), Code::kTimeout);
  calls.sealed(numbered_id(1));  // nobody waits any more
}

TEST_F(GatewayCallsTest, APollWaitsAtMostTwoSecondsAndIsGivenAtMostWhatItAsksFor) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  EXPECT_FALSE(next(16, 3'600'000));
  pass(2'000);
  EXPECT_EQ(given, std::vector<std::uint64_t>{});
  const std::vector<Answer> answers = {call(), call(), call()};
  EXPECT_EQ(next(2), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(next(2), std::vector<std::uint64_t>{3});
  EXPECT_FALSE(next());
  EXPECT_FALSE(next());
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);  // it waits already
}

TEST_F(GatewayCallsTest, OnlyTheGatewayAsksForCallsAndAnswersThem) {
  ASSERT_TRUE(calls.serve(kGateway, "first").is_ok());
  EXPECT_EQ(calls.serve(kOther, "second").code(), Code::kObjectExists);
  const Answer answer = call();
  EXPECT_FALSE(next(16, 0, kOther));
  EXPECT_EQ(refused.code(), Code::kAccessDenied);
  EXPECT_EQ(calls.answer(kOther, first + 1, std::string("forged")).code(), Code::kAccessDenied);
  EXPECT_EQ(calls.withdraw(kOther).code(), Code::kAccessDenied);
  EXPECT_FALSE(*answer);
}

TEST_F(GatewayCallsTest, CallsOfASilentGatewayAreRefusedAfterTenSeconds) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer queued = call();
  EXPECT_EQ(next(1), std::vector<std::uint64_t>{1});
  const Answer later = call();
  EXPECT_EQ(calls.next_deadline_ns(), time.now_ns + GatewayCalls::kSilentNs);
  pass(9'999);
  EXPECT_FALSE(*queued);
  pass(1);
  ASSERT_TRUE(*queued && *later);
  EXPECT_EQ((*queued)->code(), Code::kStoreUnavailable);
  EXPECT_TRUE((*queued)->status().retryable());
  EXPECT_FALSE(calls.is_expected());
  EXPECT_TRUE(*call());  // refused at once
  EXPECT_FALSE(next());  // it responds again
  EXPECT_TRUE(calls.is_expected());
  pass(1'999);  // a poll that waits is not silence
  EXPECT_TRUE(calls.is_expected());
}

TEST_F(GatewayCallsTest, AnotherGatewayIsGivenWhatTheOneThatIsGoneHad) {
  ASSERT_TRUE(calls.serve(kGateway, "first").is_ok());
  const Answer given_before = call();
  EXPECT_EQ(next(1), std::vector<std::uint64_t>{1});
  const Answer queued = call();
  calls.connection_ended(kGateway);
  EXPECT_TRUE(calls.is_expected());
  const Answer meanwhile = call();
  pass(5'000);
  ASSERT_TRUE(calls.serve(kOther, "second").is_ok());
  EXPECT_EQ(next(16, 0, kOther), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(calls.answer(kGateway, first + 1, std::string("late")).code(), Code::kAccessDenied);
  EXPECT_TRUE(calls.answer(kOther, first + 1, Status(Code::kObjectNotFound, "no")).is_ok());
  ASSERT_TRUE(*given_before);
  EXPECT_EQ((*given_before)->status().message(), "no");
  EXPECT_FALSE(*queued || *meanwhile);
}

TEST_F(GatewayCallsTest, NobodyWaitsLongerThanTenSecondsForAGatewayThatIsGone) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer answer = call();
  pass(8'000);
  calls.connection_ended(kGateway);
  pass(9'999);
  EXPECT_FALSE(*answer);
  pass(1);
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->code(), Code::kStoreUnavailable);
  EXPECT_EQ(calls.next_deadline_ns(), kNoDeadline);
}

TEST_F(GatewayCallsTest, TheGatewayOfAPredecessorIsWaitedForTenSeconds) {
  calls.expect_back();
  EXPECT_TRUE(calls.is_expected());
  const Answer answered = call();
  ASSERT_TRUE(calls.serve(kGateway, "gateway").is_ok());
  ASSERT_EQ(next(), std::vector<std::uint64_t>{1});
  ASSERT_TRUE(calls.answer(kGateway, first + 1, std::string("done")).is_ok());
  ASSERT_TRUE(*answered && (*answered)->is_ok());
  EXPECT_EQ(***answered, "done");
}

TEST_F(GatewayCallsTest, TheGatewayOfAPredecessorMayNotComeBack) {
  calls.expect_back();
  const Answer answered = call();
  pass(9'999);
  EXPECT_FALSE(*answered);
  pass(1);
  ASSERT_TRUE(*answered);
  EXPECT_EQ((*answered)->code(), Code::kStoreUnavailable);
  EXPECT_FALSE(calls.is_expected());
}

TEST_F(GatewayCallsTest, AGatewayThatWithdrawsIsNotWaitedFor) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer answer = call({numbered_id(1)});
  ASSERT_TRUE(calls.withdraw(kGateway).is_ok());
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->code(), Code::kStoreUnavailable);
  EXPECT_FALSE(calls.is_expected());
  EXPECT_EQ(calls.next_deadline_ns(), kNoDeadline);
}

TEST_F(GatewayCallsTest, ACallerThatIsGoneIsForgotten) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  const Answer gone = call({numbered_id(1)});
  const Answer stays = call({numbered_id(1)}, 60'000, kCaller + 1);
  calls.connection_ended(kCaller);
  EXPECT_EQ(calls.waiting(), 1U);
  EXPECT_EQ(next(), std::vector<std::uint64_t>{2});
  calls.sealed(numbered_id(1));
  EXPECT_FALSE(*gone);
  EXPECT_TRUE(*stays);
}

TEST_F(GatewayCallsTest, ACallbackMayCallAgain) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  std::optional<Result<std::string>> second;
  calls.call(kCaller, {"fetch", {numbered_id(1)}, ""}, {numbered_id(1)}, 60'000, [&](const Result<std::string>&) {
    calls.call(kCaller, {"fetch", {numbered_id(1)}, ""}, {numbered_id(1)}, 60'000,
               [&](const Result<std::string>& payload) { second.emplace(payload); });
  });
  calls.sealed(numbered_id(1));
  EXPECT_EQ(calls.waiting(), 1U);
  ASSERT_TRUE(calls.withdraw(kGateway).is_ok());
  EXPECT_TRUE(second);
}

TEST_F(GatewayCallsTest, TooManyCallsAreRefused) {
  ASSERT_TRUE(calls.serve(kGateway, "g").is_ok());
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < GatewayCalls::kMaxCalls; ++i)
    answers.push_back(call());
  EXPECT_FALSE(*answers.back());
  const Answer refused_call = call();
  ASSERT_TRUE(*refused_call);
  EXPECT_EQ((*refused_call)->code(), Code::kStoreFull);
}

}  // namespace
}  // namespace entrepot
