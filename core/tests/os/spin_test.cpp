#include "os/spin.h"

#include <gtest/gtest.h>

namespace entrepot::os {
namespace {

constexpr std::uint64_t kMaxNs = 20'000;

TEST(SpinGate, PollsUntilItIsReady) {
  if (cpu_count() < 2) GTEST_SKIP() << "with one CPU there is no polling";
  SpinGate gate(10'000'000'000);
  int calls = 0;
  EXPECT_TRUE(gate.poll([&] { return ++calls == 3; }));
  EXPECT_EQ(calls, 3);
}

TEST(SpinGate, StopsWhenItDoesNotPayAndTriesAgainNowAndThen) {
  if (cpu_count() < 2) GTEST_SKIP() << "with one CPU there is no polling";
  SpinGate gate(kMaxNs);
  const auto tries = [&](int polls, bool outcome) {
    int tried = 0;
    for (int i = 0; i < polls; ++i) {
      bool called = false;
      const bool ready = gate.poll([&] {
        called = true;
        return outcome;
      });
      EXPECT_EQ(ready, called && outcome);
      tried += called ? 1 : 0;
    }
    return tried;
  };
  const int at_first = tries(10, false);
  EXPECT_GE(at_first, 1);
  EXPECT_LT(at_first, 10);
  const int wary = tries(640, false);
  EXPECT_GE(wary, 5);
  EXPECT_LE(wary, 20);
  EXPECT_GE(tries(640, true), 500);  // one successful retry restores polling
}

TEST(SpinGate, OneFailureInManySuccessesChangesNothing) {
  if (cpu_count() < 2) GTEST_SKIP() << "with one CPU there is no polling";
  SpinGate gate(kMaxNs);
  for (int i = 0; i < 200; ++i) {
    bool called = false;
    const bool works = i % 20 != 19;
    (void)gate.poll([&] {
      called = true;
      return works;
    });
    EXPECT_TRUE(called) << i;
  }
}

}  // namespace
}  // namespace entrepot::os
