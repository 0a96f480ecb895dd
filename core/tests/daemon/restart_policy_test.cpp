#include "daemon/restart_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace entrepot {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// Starts daemons that live for `life_ns` each, and pauses as the policy says; returns how many died until it gave up,
// at most 100.
int deaths_until_given_up(bool ready, std::uint64_t life_ns) {
  RestartPolicy policy;
  std::uint64_t now_ns = 5 * kSecond;
  for (int deaths = 1; deaths <= 100; ++deaths) {
    policy.started(now_ns);
    if (ready) policy.ready();
    now_ns += life_ns;
    if (!policy.may_restart(now_ns)) return deaths;
    now_ns += policy.next_pause_ms() * 1'000'000;
  }
  return 100;
}

TEST(RestartPolicy, TenDeathsBeforeItIsReadyAreEnoughHoweverLongEachTook) {
  EXPECT_EQ(deaths_until_given_up(false, 10'000'000), 10);
  EXPECT_EQ(deaths_until_given_up(false, kSecond + kSecond / 20), 10);  // a log that is waited for takes a second
  EXPECT_EQ(deaths_until_given_up(false, 60 * kSecond), 10);
}

TEST(RestartPolicy, TenDeathsWithinASecondOfTheStartAreEnoughAlsoWhenReady) {
  EXPECT_EQ(deaths_until_given_up(true, 10'000'000), 10);
}

TEST(RestartPolicy, ADaemonThatWorkedIsRestartedForEver) {
  EXPECT_EQ(deaths_until_given_up(true, kSecond + kSecond / 20), 100);
}

TEST(RestartPolicy, OneThatIsReadyEndsTheRowOfThoseThatWereNot) {
  RestartPolicy policy;
  std::uint64_t now_ns = kSecond;
  for (int round = 0; round < 30; ++round) {
    const bool ready = round % 3 == 2;
    policy.started(now_ns);
    if (ready) policy.ready();
    now_ns += 20 * kSecond;
    ASSERT_TRUE(policy.may_restart(now_ns)) << round;
    EXPECT_LE(policy.next_pause_ms(), ready ? RestartPolicy::kMinPauseMs : 2 * RestartPolicy::kMinPauseMs) << round;
  }
}

TEST(RestartPolicy, PausesGrowUpToTheirLimit) {
  RestartPolicy policy;
  std::uint64_t pause_ms = RestartPolicy::kMinPauseMs;
  for (int death = 1; death < 10; ++death) {
    policy.started(kSecond);
    ASSERT_TRUE(policy.may_restart(kSecond));
    EXPECT_EQ(policy.next_pause_ms(), pause_ms);
    pause_ms = pause_ms * 2 < RestartPolicy::kMaxPauseMs ? pause_ms * 2 : RestartPolicy::kMaxPauseMs;
  }
}

}  // namespace
}  // namespace entrepot
