#include "base/timers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace entrepot {
namespace {

using Timer = Timers::Timer;

struct TimersTest : ::testing::Test {
  // A timer that notes its name when it is called.
  Timer named(const std::string& name) {
    return timers.add([this, name](std::uint64_t now_ns) {
      EXPECT_EQ(now_ns, now);
      called.push_back(name);
    });
  }
  std::vector<std::string> run_at(std::uint64_t time) {
    now = time;
    timers.run_due(now);
    return std::exchange(called, {});
  }
  using Names = std::vector<std::string>;

  Timers timers;
  std::uint64_t now = 0;
  std::vector<std::string> called;
};

TEST_F(TimersTest, EachIsCalledOnceWhenItsTimeHasCome) {
  Timer a = named("a");
  Timer b = named("b");
  const Timer idle = named("idle");
  a.arm(20);
  b.arm(10);
  EXPECT_EQ(timers.next_ns(), 10U);
  EXPECT_EQ(run_at(9), Names{});
  EXPECT_EQ(run_at(10), Names{"b"});
  EXPECT_FALSE(b.is_armed());
  EXPECT_EQ(timers.next_ns(), 20U);
  EXPECT_EQ(run_at(500), Names{"a"});
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
  b.arm(30);
  a.arm(40);
  EXPECT_EQ(run_at(500), (Names{"b", "a"})) << "in the order of the deadlines";
}

TEST_F(TimersTest, ItIsMovedDisarmedAndForgotten) {
  Timer a = named("a");
  Timer b = named("b");
  a.arm(10);
  a.arm(50);
  EXPECT_EQ(a.deadline_ns(), 50U);
  b.arm(20);
  b.disarm();
  EXPECT_EQ(run_at(49), Names{});
  EXPECT_EQ(run_at(50), Names{"a"});
  a.arm(60);
  a = Timer();
  EXPECT_EQ(timers.next_ns(), kNoDeadline);
  a.arm(60);
  EXPECT_FALSE(a.is_armed()) << "nothing is registered";
}

TEST_F(TimersTest, ArmingIfIdleOrNoLaterKeepsAnEarlierTime) {
  Timer a = named("a");
  a.arm_if_idle(30);
  a.arm_if_idle(20);
  EXPECT_EQ(a.deadline_ns(), 30U);
  a.arm_no_later(40);
  EXPECT_EQ(a.deadline_ns(), 30U);
  a.arm_no_later(20);
  EXPECT_EQ(a.deadline_ns(), 20U);
  a.disarm();
  a.arm_no_later(50);
  EXPECT_EQ(a.deadline_ns(), 50U);
}

TEST_F(TimersTest, TheHandleMoves) {
  Timer a = named("a");
  a.arm(10);
  Timer b = std::move(a);
  EXPECT_TRUE(b.is_armed());
  EXPECT_FALSE(a.is_armed());  // NOLINT(bugprone-use-after-move): it is defined
  Timer c = named("c");
  c.arm(10);
  c = std::move(b);  // the one that it had is gone
  EXPECT_EQ(run_at(10), Names{"a"});
}

TEST_F(TimersTest, WhatACallbackMakesDueIsLeftForTheNextRound) {
  Timer again;
  again = timers.add([&](std::uint64_t) {
    called.emplace_back("again");
    again.arm(0);
  });
  again.arm(0);
  EXPECT_EQ(run_at(10), Names{"again"});
  EXPECT_EQ(timers.next_ns(), 0U);
  EXPECT_EQ(run_at(10), Names{"again"});
  again.disarm();
  EXPECT_EQ(run_at(10), Names{});
}

TEST_F(TimersTest, ADueOneThatAnEarlierOneDisarmedOrRemovedIsNotCalled) {
  Timer disarmed = named("disarmed");
  Timer removed = named("removed");
  Timer moved = named("moved");
  Timer successor;
  Timer first = timers.add([&](std::uint64_t) {
    EXPECT_TRUE(disarmed.is_armed());
    EXPECT_EQ(moved.deadline_ns(), 2U);
    disarmed.disarm();
    removed.reset();
    successor = named("successor");  // with the handle of the one that was removed
    moved.arm(100);
  });
  first.arm(1);
  for (Timer* timer : {&disarmed, &removed, &moved})
    timer->arm(2);
  EXPECT_EQ(run_at(50), Names{});
  successor.arm(60);
  EXPECT_EQ(run_at(60), Names{"successor"});
  EXPECT_EQ(run_at(100), Names{"moved"});
}

TEST_F(TimersTest, ACallbackMayRemoveOrReplaceItself) {
  Timer timer;
  // Longer than std::function and std::string store in place, so that a sanitizer sees a read after its end.
  timer = timers.add([&, text = std::string(100, 'x')](std::uint64_t) {
    timer.reset();
    timer = named("next");
    timer.arm(20);
    called.push_back(text);
  });
  timer.arm(10);
  EXPECT_EQ(run_at(10), Names{std::string(100, 'x')});
  EXPECT_EQ(run_at(20), Names{"next"});
  timer.arm(30);
  EXPECT_EQ(run_at(30), Names{"next"});
}

// A list of deadlines that is searched from end to end, against timers whose callbacks change other timers.
TEST(TimersModel, CallsWhomANaiveListWouldCall) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Timers timers;
    std::map<int, Timer> registered;
    std::map<int, std::uint64_t> deadlines;  // of the armed ones
    std::uint64_t now_ns = 0;
    int added = 0;
    std::vector<int> expected;  // of this round, and not called yet
    const auto change_any = [&] {
      if (registered.empty()) return;
      const int name = std::next(registered.begin(), static_cast<int>(random() % registered.size()))->first;
      std::erase(expected, name);
      deadlines.erase(name);
      switch (random() % 4) {
        case 0:
          registered.erase(name);
          return;
        case 1:
          registered.at(name).disarm();
          return;
        default:
          deadlines[name] = now_ns + random() % 30;
          registered.at(name).arm(deadlines[name]);
      }
    };
    for (int step = 0; step < 1000; ++step) {
      if (registered.size() < 20) {
        const int name = added++;
        registered.emplace(name, timers.add([&, name](std::uint64_t) {
          ASSERT_FALSE(expected.empty());
          EXPECT_EQ(std::find(expected.begin(), expected.end(), name) - expected.begin(), 0) << "in order";
          std::erase(expected, name);
          for (std::uint64_t i = random() % 3; i > 0; --i)
            change_any();
        }));
      }
      change_any();
      now_ns += random() % 5;
      for (const auto& [name, at_ns] : deadlines) {
        if (at_ns <= now_ns) expected.push_back(name);
      }
      std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return deadlines[a] < deadlines[b]; });
      // Of equal deadlines the order is that of arming, which DeadlineHeap's test covers: here they are told apart.
      bool distinct = true;
      for (std::size_t i = 1; i < expected.size(); ++i)
        distinct = distinct && deadlines[expected[i]] != deadlines[expected[i - 1]];
      if (!distinct) {
        for (const int name : expected) {
          deadlines.erase(name);
          registered.at(name).disarm();
        }
        expected.clear();
      }
      for (const int name : expected)
        deadlines.erase(name);
      timers.run_due(now_ns);
      ASSERT_TRUE(expected.empty());
      std::uint64_t next_ns = kNoDeadline;
      for (const auto& [name, at_ns] : deadlines)
        next_ns = std::min(next_ns, at_ns);
      ASSERT_EQ(timers.next_ns(), next_ns);
    }
  }
}

}  // namespace
}  // namespace entrepot
