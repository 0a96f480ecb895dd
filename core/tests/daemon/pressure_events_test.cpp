#include "daemon/pressure_events.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/peer.h"
#include "os/scratch.h"

namespace entrepot {
namespace {

using Event = PressureEvents::Event;

struct PressureEventsTest : ::testing::Test {
  PressureEventsTest() {
    scratch.write("proc/self/cgroup", "0::/pod\n");
    scratch.write(kCounters, "max 0\n");
  }
  void open() {
    events.open([this](Event event) { seen.push_back(event); }, scratch.path());
  }
  void turn() {  // the loop has a timer of its own, so that this never waits long
    ASSERT_TRUE(loop.dispatch().is_ok());
    loop.run_due();
  }
  void turn_until_seen() {
    const os::Deadline deadline = os::Deadline::after_ms(20'000);
    while (seen.empty() && !deadline.passed())
      turn();
  }
  void count(int limit_hits) { scratch.write(kCounters, "max " + std::to_string(limit_hits) + "\n"); }

  static constexpr const char* kCounters = "sys/fs/cgroup/pod/memory.events";
  testing::Scratch scratch;
  testing::TestLoop loop;
  std::vector<Event> seen;
  PressureEvents events{loop};
};

TEST_F(PressureEventsTest, CountersAreReportedOnceEachWhileTheyAreFollowed) {
  open();
  EXPECT_FALSE(events.has_trigger());
  ASSERT_TRUE(events.has_counters());
  events.follow(true);
  count(1);
  turn_until_seen();
  EXPECT_EQ(seen, std::vector{Event::kCounted});
  turn();
  EXPECT_EQ(seen.size(), 1U);
}

TEST_F(PressureEventsTest, NothingWakesTheLoopOtherwiseAndNothingIsReportedLater) {
  open();
  count(1);
  turn();
  EXPECT_TRUE(seen.empty());
  events.follow(true);
  turn();
  EXPECT_TRUE(seen.empty()) << "it was before anybody wanted to know";
  events.follow(false);
  count(2);
  turn();
  EXPECT_TRUE(seen.empty());
}

TEST_F(PressureEventsTest, FollowingTwiceReportsOnce) {
  open();
  events.follow(true);
  events.follow(true);
  count(1);
  turn_until_seen();
  turn();
  EXPECT_EQ(seen.size(), 1U);
}

TEST_F(PressureEventsTest, AFileThatIsNoTriggerLeavesTheCounters) {
  scratch.write("proc/pressure/memory", "");  // takes the text, and cannot be waited for
  open();
  EXPECT_TRUE(events.has_trigger());
  events.follow(true);
  EXPECT_FALSE(events.has_trigger());
  count(1);
  turn_until_seen();
  EXPECT_EQ(seen, std::vector{Event::kCounted});
}

TEST_F(PressureEventsTest, WithoutAnyOfThemNothingIsFollowed) {
  scratch.write("proc/self/cgroup", "4:memory:/docker\n");
  open();
  EXPECT_FALSE(events.has_trigger());
  EXPECT_FALSE(events.has_counters());
  events.follow(true);
  turn();
  EXPECT_TRUE(seen.empty());
}

TEST(PressureTriggerOfThisMachine, CanBeFollowedAndReportsNothingByItself) {
  testing::TestLoop loop;
  PressureEvents events(loop);
  events.open([](Event) {});
  if (!events.has_trigger()) GTEST_SKIP() << "the kernel has no triggers for memory pressure";
  events.follow(true);
  EXPECT_TRUE(events.has_trigger()) << "it can be waited for";
  events.follow(false);
  events.follow(true);
  EXPECT_TRUE(events.has_trigger()) << "again";
}

}  // namespace
}  // namespace entrepot
