#include "daemon/page_collapser.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <sstream>
#include <string>

#include "os/clock.h"
#include "os/mapping.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHuge = os::kHugePageBytes;
constexpr std::uint64_t kBytes = 4 * kHuge;
constexpr auto kWatchdog = std::chrono::seconds(60);

bool always(std::uint64_t) { return true; }

// Written to, as the provisioner's are: the kernel leaves reserved pages alone.
UniqueFd small_pages() {
  auto fd = os::create_memfd("test", kBytes);
  EXPECT_TRUE(fd.is_ok());
  const auto mapping = os::Mapping::map(fd->get(), 0, kBytes, os::Access::kReadWrite);
  EXPECT_TRUE(mapping.is_ok());
  std::memset(mapping->data(), 1, kBytes);
  return fd.take();
}

CollapseJob job(const UniqueFd& fd, std::uint32_t segment = 1) {
  return {segment, 1, kBytes, os::duplicate(fd.get()).take()};
}

bool kernel_makes_huge_pages() {
  const UniqueFd fd = small_pages();
  const auto mapping = os::Mapping::map(fd.get(), 0, kBytes, os::Access::kReadWrite, kHuge);
  return mapping.is_ok() && os::collapse_populated(mapping->data(), kBytes);
}

// As /proc/self/smaps says of the mapping that starts there.
std::uint64_t huge_bytes(const std::byte* start) {
  std::ifstream maps("/proc/self/smaps");
  std::ostringstream address;
  address << std::hex << reinterpret_cast<std::uintptr_t>(start) << '-';
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(address.str())) is_ours = true;
    if (is_ours && line.starts_with("ShmemPmdMapped:")) return std::stoull(line.substr(15)) << 10;
  }
  return 0;
}

TEST(PageCollapser, MakesHugePagesWhoseBytesStayTheSame) {
  if (!kernel_makes_huge_pages()) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
  const UniqueFd fd = small_pages();
  const auto mapping = os::Mapping::map(fd.get(), 0, kBytes, os::Access::kReadWrite, kHuge);
  ASSERT_TRUE(mapping.is_ok());
  for (std::uint64_t at = 0; at < kBytes; at += 4096)
    std::memcpy(mapping->data() + at, &at, sizeof(at));
  ASSERT_EQ(huge_bytes(mapping->data()), 0U);
  std::promise<std::uint32_t> done;
  PageCollapser collapser([&](std::uint32_t segment, std::uint32_t) { done.set_value(segment); }, always, 1);
  ASSERT_TRUE(collapser.add(job(fd, 7)).is_ok());
  auto segment = done.get_future();
  ASSERT_EQ(segment.wait_for(kWatchdog), std::future_status::ready);
  EXPECT_EQ(segment.get(), 7U);
  for (std::uint64_t at = 0; at < kBytes; at += 4096)
    ASSERT_EQ(std::memcmp(mapping->data() + at, &at, sizeof(at)), 0);
  EXPECT_EQ(huge_bytes(mapping->data()), kBytes);
}

TEST(PageCollapser, LeavesWhatWasReturnedToTheMachine) {
  if (!kernel_makes_huge_pages()) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
  const UniqueFd with_hole = small_pages();
  ASSERT_TRUE(os::punch(with_hole.get(), kHuge + 4096, 4096).is_ok());
  const UniqueFd whole = small_pages();
  std::promise<std::uint32_t> done;
  PageCollapser collapser([&](std::uint32_t segment, std::uint32_t) { done.set_value(segment); }, always, 1);
  ASSERT_TRUE(collapser.add(job(with_hole, 1)).is_ok());
  ASSERT_TRUE(collapser.add(job(whole, 2)).is_ok());
  auto segment = done.get_future();
  ASSERT_EQ(segment.wait_for(kWatchdog), std::future_status::ready);
  EXPECT_EQ(segment.get(), 2U) << "the first one is not all in huge pages";
  EXPECT_EQ(*os::resident_bytes(with_hole.get()), kBytes - 4096);
}

TEST(PageCollapser, WaitsWhileSomebodyWaitsForMemory) {
  const UniqueFd fd = small_pages();
  std::atomic<bool> is_begun = false;
  const auto has_memory = [&](std::uint64_t) { return !is_begun.exchange(true); };
  PageCollapser collapser([](std::uint32_t, std::uint32_t) {}, has_memory, 3'600'000);
  ASSERT_TRUE(collapser.add(job(fd)).is_ok());
  collapser.stop();  // at once, though it was to be quiet for an hour
  EXPECT_FALSE(is_begun);
}

TEST(PageCollapser, DoesNothingWithSegmentsThatAreGoneOrWhileMemoryIsShort) {
  if (!kernel_makes_huge_pages()) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
  const UniqueFd fd = small_pages();
  std::promise<void> reached;
  std::promise<void> resumed;
  std::atomic<int> checks = 0;
  std::promise<std::uint32_t> done;
  PageCollapser collapser([&](std::uint32_t segment, std::uint32_t) { done.set_value(segment); },
                          [&](std::uint64_t) {
                            const int check = ++checks;
                            if (check == 1) {
                              reached.set_value();
                              resumed.get_future().wait();
                            }
                            return check != 2;  // segment 3: short of memory
                          },
                          1);
  ASSERT_TRUE(collapser.add(job(fd, 1)).is_ok());
  ASSERT_EQ(reached.get_future().wait_for(kWatchdog), std::future_status::ready);
  ASSERT_TRUE(collapser.add(job(fd, 2)).is_ok());
  ASSERT_TRUE(collapser.add(job(fd, 3)).is_ok());
  ASSERT_TRUE(collapser.add(job(fd, 4)).is_ok());
  collapser.cancel(1, 1);  // in its first step
  collapser.cancel(2, 1);  // in the queue
  resumed.set_value();
  auto segment = done.get_future();
  ASSERT_EQ(segment.wait_for(kWatchdog), std::future_status::ready);
  EXPECT_EQ(segment.get(), 4U);
}

}  // namespace
}  // namespace entrepot
