#include "daemon/provisioner.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "os/events.h"
#include "os/memfd.h"
#include "os/scratch.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

UniqueFd memory(std::uint64_t bytes) {
  auto fd = os::create_memfd("test", bytes);
  EXPECT_TRUE(fd.is_ok());
  return fd.take();
}

TEST(FillWarm, MakesEveryPageExist) {
  const UniqueFd fd = memory(8 * kMiB);
  const auto filled = fill_warm(fd.get(), 8 * kMiB, [] { return true; });
  ASSERT_TRUE(filled.is_ok()) << filled.status().to_string();
  EXPECT_TRUE(filled->kind == MemoryKind::kHugePages || filled->kind == MemoryKind::kSmallPages);
  EXPECT_GE(*os::resident_bytes(fd.get()), 8 * kMiB);
}

TEST(FillWarm, TwoThreadsMakeEveryPageForSomebodyWhoWaits) {
  const UniqueFd fd = memory(192 * kMiB + 4096);
  const auto filled = fill_warm(fd.get(), 192 * kMiB + 4096, [] { return true; }, true);
  ASSERT_TRUE(filled.is_ok()) << filled.status().to_string();
  EXPECT_EQ(*os::resident_bytes(fd.get()), 192 * kMiB + 4096);
}

TEST(FillWarm, BothThreadsStopWhenTheyAreToldTo) {
  const UniqueFd fd = memory(512 * kMiB);
  int steps = 0;
  EXPECT_FALSE(fill_warm(fd.get(), 512 * kMiB, [&] { return ++steps < 2; }, true).is_ok());
  EXPECT_LT(*os::resident_bytes(fd.get()), 512 * kMiB);
}

TEST(FillWarm, StopsWhenItIsToldTo) {
  const UniqueFd fd = memory(256 * kMiB);
  int steps = 0;
  const auto filled = fill_warm(fd.get(), 256 * kMiB, [&] { return ++steps < 2; });
  EXPECT_FALSE(filled.is_ok());
  EXPECT_LT(*os::resident_bytes(fd.get()), 256 * kMiB);
}

TEST(FillWarm, NeverTakesTheMachinesLastMemory) {
  const std::uint64_t more_than_there_is = 1ULL << 45;
  const UniqueFd fd = memory(more_than_there_is);
  int steps = 0;
  // Only on a very small machine does the first step show that the rest cannot fit, so limit the number of steps.
  const auto filled = fill_warm(fd.get(), more_than_there_is, [&] { return ++steps < 3; });
  EXPECT_FALSE(filled.is_ok());
}

TEST(MachineIsShort, WithLessThanTwoReservesOrWhileProcessesWaitForMemory) {
  const testing::Scratch scratch;
  const auto is_short = [&](std::uint64_t available_mib, const std::string& stall) {
    scratch.write("proc/meminfo",
                  "MemTotal: 1024000 kB\nMemAvailable: " + std::to_string(available_mib << 10) + " kB\n");
    scratch.write("proc/pressure/memory", "some avg10=" + stall + " avg60=0.00 avg300=0.00 total=1\n");
    return machine_is_short(scratch.path());
  };
  EXPECT_FALSE(is_short(600, "0.00"));
  EXPECT_FALSE(is_short(256, "9.90"));
  EXPECT_TRUE(is_short(255, "0.00")) << "the reserve is 128 MiB";
  EXPECT_TRUE(is_short(600, "10.00"));
  scratch.write("proc/self/cgroup", "0::/pod\n");
  scratch.write("sys/fs/cgroup/pod/memory.max", std::to_string(500 * kMiB));
  scratch.write("sys/fs/cgroup/pod/memory.current", std::to_string(200 * kMiB));
  EXPECT_FALSE(is_short(600, "0.00"));
  scratch.write("sys/fs/cgroup/pod/memory.current", std::to_string(300 * kMiB));
  EXPECT_TRUE(is_short(600, "0.00")) << "the group's limit counts";
}

TEST(Provisioner, DoesUrgentWorkFirstAndSaysWhenItIsDone) {
  auto event = os::create_event_fd();
  ASSERT_TRUE(event.is_ok());
  Provisioner provisioner;
  ASSERT_TRUE(provisioner.start(event->get()).is_ok());
  for (std::uint32_t segment = 0; segment < 4; ++segment) {
    provisioner.add({segment, 1, 4 * kMiB, segment == 3, memory(4 * kMiB)});
  }
  std::map<std::uint32_t, Provisioned> done;
  const auto deadline = os::Deadline::after_ms(20'000);
  while (done.size() < 4 && !deadline.passed()) {
    const auto readable = os::wait_readable(event->get(), deadline);
    ASSERT_TRUE(readable.is_ok());
    os::clear_event(event->get());
    for (Provisioned& finished : provisioner.take_finished())
      done[finished.segment] = std::move(finished);
  }
  ASSERT_EQ(done.size(), 4U);
  for (const auto& [segment, finished] : done)
    EXPECT_TRUE(finished.status.is_ok()) << finished.status.to_string();
}

TEST(Provisioner, WhoWaitsGetsSmallPagesWhereHugeOnesAreSlowAndTheyBecomeHugeLater) {
  constexpr std::uint64_t kBytes = 64 * kMiB;
  const UniqueFd fd = memory(kBytes);
  const auto with_huge_pages = fill_warm(memory(kBytes).get(), kBytes, [] { return true; });
  ASSERT_TRUE(with_huge_pages.is_ok()) << with_huge_pages.status().to_string();
  if (with_huge_pages->kind != MemoryKind::kHugePages) GTEST_SKIP() << "this machine makes no huge pages";
  auto event = os::create_event_fd();
  ASSERT_TRUE(event.is_ok());
  Provisioner provisioner(0, 1);  // every huge page is slow
  ASSERT_TRUE(provisioner.start(event->get()).is_ok());
  provisioner.add({1, 1, kBytes, true, os::duplicate(fd.get()).take()});
  std::vector<MemoryKind> kinds;
  const auto deadline = os::Deadline::after_ms(60'000);
  while (kinds.size() < 2) {
    ASSERT_FALSE(deadline.passed()) << "reports: " << kinds.size();
    ASSERT_TRUE(os::wait_readable(event->get(), deadline).is_ok());
    os::clear_event(event->get());
    for (const Provisioned& finished : provisioner.take_finished()) {
      EXPECT_TRUE(finished.status.is_ok()) << finished.status.to_string();
      EXPECT_EQ(finished.segment, 1U);
      kinds.push_back(finished.kind);
      EXPECT_EQ(*os::resident_bytes(fd.get()), kBytes);
    }
  }
  EXPECT_EQ(kinds, (std::vector{MemoryKind::kSmallPages, MemoryKind::kHugePages}));
}

TEST(Provisioner, GivesBackWhatIsUnwantedBeforeItGoesOn) {
  constexpr std::uint64_t kLarge = 1024 * kMiB;
  auto event = os::create_event_fd();
  ASSERT_TRUE(event.is_ok());
  const UniqueFd unwanted = memory(8 * kMiB);
  ASSERT_TRUE(os::reserve(unwanted.get(), 0, 8 * kMiB).is_ok());
  const UniqueFd large = memory(kLarge);
  Provisioner provisioner;
  ASSERT_TRUE(provisioner.start(event->get()).is_ok());
  provisioner.add({1, 1, kLarge, false, os::duplicate(large.get()).take()});
  provisioner.return_pages(2, os::duplicate(unwanted.get()).take(), 8 * kMiB);
  const auto deadline = os::Deadline::after_ms(60'000);
  while (*os::resident_bytes(unwanted.get()) != 0) {
    ASSERT_FALSE(deadline.passed());
    std::this_thread::yield();
  }
  EXPECT_LT(*os::resident_bytes(large.get()), kLarge) << "it waited for the whole of what was being filled";
  provisioner.cancel(1, 1);
}

// The thread continues with the rest at once, so a check may come too late: one success in several attempts is enough.
TEST(Provisioner, UrgentWorkWaitsForNoMoreToBeGivenBackThanItTakes) {
  constexpr std::uint64_t kUnwanted = 512 * kMiB;
  bool some_left = false;
  for (int attempt = 0; attempt < 10 && !some_left; ++attempt) {
    auto event = os::create_event_fd();
    ASSERT_TRUE(event.is_ok());
    const UniqueFd unwanted = memory(kUnwanted);
    ASSERT_TRUE(os::reserve(unwanted.get(), 0, kUnwanted).is_ok());
    Provisioner provisioner;
    provisioner.return_pages(2, os::duplicate(unwanted.get()).take(), kUnwanted);
    provisioner.add({1, 1, 4 * kMiB, true, memory(4 * kMiB)});
    ASSERT_TRUE(provisioner.start(event->get()).is_ok());
    const auto deadline = os::Deadline::after_ms(60'000);
    ASSERT_TRUE(os::wait_readable(event->get(), deadline).is_ok());
    some_left = *os::resident_bytes(unwanted.get()) > 0;
    EXPECT_EQ(provisioner.take_finished().size(), 1U);
    while (*os::resident_bytes(unwanted.get()) != 0) {
      ASSERT_FALSE(deadline.passed());
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(some_left);
}

TEST(Provisioner, GivesWayToUrgentWorkWhenItHasBegun) {
  constexpr std::uint64_t kLarge = 1024 * kMiB;
  auto event = os::create_event_fd();
  ASSERT_TRUE(event.is_ok());
  const UniqueFd large = memory(kLarge);
  Provisioner provisioner;
  ASSERT_TRUE(provisioner.start(event->get()).is_ok());
  provisioner.add({1, 1, kLarge, false, os::duplicate(large.get()).take()});
  const auto deadline = os::Deadline::after_ms(60'000);
  while (*os::resident_bytes(large.get()) == 0) {
    ASSERT_FALSE(deadline.passed());
    std::this_thread::yield();
  }
  provisioner.add({2, 1, 4 * kMiB, true, memory(4 * kMiB)});
  std::vector<std::uint32_t> order;
  while (order.size() < 2 && !deadline.passed()) {
    ASSERT_TRUE(os::wait_readable(event->get(), deadline).is_ok());
    os::clear_event(event->get());
    for (const Provisioned& finished : provisioner.take_finished()) {
      EXPECT_TRUE(finished.status.is_ok()) << finished.status.to_string();
      order.push_back(finished.segment);
    }
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 1}));
  EXPECT_GE(*os::resident_bytes(large.get()), kLarge);
}

TEST(Provisioner, CancelledWorkIsNotReported) {
  auto event = os::create_event_fd();
  ASSERT_TRUE(event.is_ok());
  Provisioner provisioner;
  ASSERT_TRUE(provisioner.start(event->get()).is_ok());
  for (std::uint32_t segment = 0; segment < 20; ++segment) {
    provisioner.add({segment, 1, 4 * kMiB, false, memory(4 * kMiB)});
    if (segment != 19) provisioner.cancel(segment, 1);
  }
  std::vector<Provisioned> done;
  const auto deadline = os::Deadline::after_ms(20'000);
  const auto has_last = [&] {
    for (const Provisioned& finished : done) {
      if (finished.segment == 19) return true;
    }
    return false;
  };
  while (!has_last() && !deadline.passed()) {
    ASSERT_TRUE(os::wait_readable(event->get(), deadline).is_ok());
    os::clear_event(event->get());
    for (Provisioned& finished : provisioner.take_finished())
      done.push_back(std::move(finished));
  }
  EXPECT_TRUE(has_last());
  provisioner.stop();
}

}  // namespace
}  // namespace entrepot
