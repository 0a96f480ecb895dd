#include "os/memory_pressure.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <fstream>
#include <sstream>

#include "os/events.h"
#include "os/scratch.h"

namespace entrepot::os {
namespace {

using testing::Scratch;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const std::string kWritten = std::string(kStallTrigger) + '\0';

TEST(StallTrigger, IsSetInTheMachinesFileWithoutAGroupOfVersionTwo) {
  const Scratch scratch;
  scratch.write("proc/self/cgroup", "4:memory:/docker\n");
  scratch.write("proc/pressure/memory", "");
  const Result<UniqueFd> trigger = open_stall_trigger(scratch.path());
  ASSERT_TRUE(trigger.is_ok()) << trigger.status().to_string();
  EXPECT_EQ(text_of(scratch.path("proc/pressure/memory")), kWritten);
}

TEST(StallTrigger, IsSetForTheGroupIfThatHasAFile) {
  const Scratch scratch;
  scratch.write("proc/self/cgroup", "0::/pods/one\n");
  scratch.write("proc/pressure/memory", "");
  scratch.write("sys/fs/cgroup/pods/one/memory.pressure", "");
  const Result<UniqueFd> trigger = open_stall_trigger(scratch.path());
  ASSERT_TRUE(trigger.is_ok()) << trigger.status().to_string();
  EXPECT_EQ(text_of(scratch.path("sys/fs/cgroup/pods/one/memory.pressure")), kWritten);
  EXPECT_EQ(text_of(scratch.path("proc/pressure/memory")), "");
}

TEST(StallTrigger, WithoutAFileTheErrorNamesAllThatWereTried) {
  const Scratch scratch;
  scratch.write("proc/self/cgroup", "0::/pods/one\n");
  const Status status = open_stall_trigger(scratch.path()).status();
  EXPECT_EQ(status.code(), Code::kUnsupportedType);
  EXPECT_NE(status.message().find("pods/one/memory.pressure"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("proc/pressure/memory"), std::string::npos) << status.message();
}

TEST(StallTrigger, TheKernelAcceptsItWhereItHasThem) {
  const Result<UniqueFd> trigger = open_stall_trigger();
  if (!trigger.is_ok()) GTEST_SKIP() << trigger.status().message();
  pollfd entry{trigger->get(), POLLPRI, 0};
  ASSERT_GE(::poll(&entry, 1, 0), 0);
  EXPECT_EQ(entry.revents & (POLLERR | POLLNVAL), 0) << "the kernel says so if the descriptor has no trigger";
}

TEST(MemoryEvents, AreReadableOnceACounterOfTheGroupOrOfAParentChanges) {
  const Scratch scratch;
  scratch.write("proc/self/cgroup", "0::/pods/one\n");
  for (const std::string file : {"sys/fs/cgroup/pods/one/memory.events", "sys/fs/cgroup/pods/memory.events"})
    scratch.write(file, "max 0\n");
  const Result<UniqueFd> opened = open_memory_events(scratch.path());
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  const int events = opened->get();
  EXPECT_FALSE(*wait_readable(events, Deadline::after_ms(0)));
  for (const std::string file : {"sys/fs/cgroup/pods/one/memory.events", "sys/fs/cgroup/pods/memory.events"}) {
    scratch.write(file, "max 1\n");
    EXPECT_TRUE(*wait_readable(events, Deadline::after_ms(20'000))) << file;
    clear_memory_events(events);
    EXPECT_FALSE(*wait_readable(events, Deadline::after_ms(0)));
  }
}

TEST(MemoryEvents, WithoutAGroupOfVersionTwoThereAreNone) {
  const Scratch scratch;
  scratch.write("proc/self/cgroup", "4:memory:/docker\n");
  EXPECT_EQ(open_memory_events(scratch.path()).code(), Code::kUnsupportedType);
}

}  // namespace
}  // namespace entrepot::os
