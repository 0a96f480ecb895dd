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
  EXPECT_GE(wary, 2);
  EXPECT_LE(wary, 5);
  EXPECT_GE(tries(5'000, true), 3'000);  // one successful retry restores polling
}

TEST(SpinGate, TriesTheMoreSeldomTheMoreHaveFailed) {
  if (cpu_count() < 2) GTEST_SKIP() << "with one CPU there is no polling";
  SpinGate gate(kMaxNs);
  int tried = 0;
  const auto poll = [&](bool outcome) {
    return gate.poll([&] {
      ++tried;
      return outcome;
    });
  };
  const auto waits_until_tried = [&] {
    const int before = tried;
    int waits = 0;
    for (; tried == before && waits < 100'000; ++waits)
      static_cast<void>(poll(false));
    return waits;
  };
  int last = 0;
  for (int i = 0; i < 6; ++i) {
    const int waits = waits_until_tried();
    EXPECT_GE(waits, last) << i;
    last = waits;
  }
  EXPECT_GT(last, 500);  // far fewer than one in a hundred requests
  for (int i = 0; i < 20; ++i)
    last = waits_until_tried();
  EXPECT_LT(last, 10'000);  // but not never
  // A success by chance is no reason to try more often.
  while (!poll(true)) {
  }
  static_cast<void>(waits_until_tried());
  EXPECT_GT(waits_until_tried(), 500);
  // Many are.
  for (int i = 0; i < 20'000; ++i)
    static_cast<void>(poll(true));
  for (int i = 0; i < 100; ++i)
    static_cast<void>(poll(false));
  EXPECT_LT(waits_until_tried(), 200);
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
