#include "os/memory_info.h"

#include <gtest/gtest.h>

#include "os/scratch.h"

namespace entrepot::os {
namespace {

using entrepot::testing::Scratch;

constexpr std::uint64_t kMiB = 1U << 20;

// A machine with 1000 MiB of memory, 600 of it available.
void write_meminfo(const Scratch& scratch) {
  scratch.write("proc/meminfo", "MemTotal:        1024000 kB\nMemFree:  1 kB\nMemAvailable:     614400 kB\n");
}

TEST(MemoryInfo, ThisMachine) {
  const MemoryInfo info = read_memory_info().take();
  EXPECT_GT(info.total, 0U);
  EXPECT_LE(info.available, info.total);
  EXPECT_LE(info.headroom(), info.available);
  EXPECT_LE(info.ceiling(), info.total);
}

TEST(MemoryInfo, NoCgroupMeansNoLimit) {
  const Scratch scratch;
  write_meminfo(scratch);
  const MemoryInfo info = read_memory_info(scratch.path()).take();
  EXPECT_EQ(info.total, 1000 * kMiB);
  EXPECT_EQ(info.headroom(), 600 * kMiB);
  EXPECT_FALSE(info.cgroup_limit.has_value());
  EXPECT_EQ(info.describe_headroom(), "the machine has 600 MiB left of 1000 MiB");
}

TEST(MemoryInfo, VersionTwoTakesTheTightestParent) {
  const Scratch scratch;
  write_meminfo(scratch);
  scratch.write("proc/self/cgroup", "0::/pods/one\n");
  scratch.write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  scratch.write("sys/fs/cgroup/pods/one/memory.current", "1000\n");
  scratch.write("sys/fs/cgroup/pods/memory.max", std::to_string(500 * kMiB));
  scratch.write("sys/fs/cgroup/pods/memory.current", std::to_string(300 * kMiB));
  scratch.write("sys/fs/cgroup/pods/memory.stat",
                "anon 1\ninactive_file " + std::to_string(100 * kMiB) + "\nactive_file 7\n");
  const MemoryInfo info = read_memory_info(scratch.path()).take();
  EXPECT_EQ(info.cgroup_limit, 500 * kMiB);
  EXPECT_EQ(info.cgroup_usage, 200 * kMiB);  // reclaimable cache does not count as usage
  EXPECT_EQ(info.headroom(), 300 * kMiB);
  EXPECT_EQ(info.ceiling(), 500 * kMiB);
  EXPECT_EQ(info.describe_headroom(), "the daemon's control group has 300 MiB left of 500 MiB");
}

TEST(MemoryInfo, VersionOne) {
  const Scratch scratch;
  write_meminfo(scratch);
  scratch.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/ignored\n");
  scratch.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(100 * kMiB));
  scratch.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(30 * kMiB));
  const MemoryInfo info = read_memory_info(scratch.path()).take();
  EXPECT_EQ(info.cgroup_limit, 100 * kMiB);
  EXPECT_EQ(info.headroom(), 70 * kMiB);
}

TEST(MemoryInfo, VersionOneWithoutLimit) {
  const Scratch scratch;
  write_meminfo(scratch);
  scratch.write("proc/self/cgroup", "4:memory:/\n");
  scratch.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(read_memory_info(scratch.path())->cgroup_limit.has_value());
}

TEST(MemoryStall, IsThatOfOurGroupElseThatOfTheMachine) {
  const Scratch scratch;
  EXPECT_EQ(read_memory_stall_percent(scratch.path()), 0.0) << "the kernel says nothing";
  scratch.write("proc/pressure/memory", "some avg10=2.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 total=2\n");
  EXPECT_EQ(read_memory_stall_percent(scratch.path()), 2.5);
  scratch.write("proc/self/cgroup", "4:memory:/docker\n0::/pods/one\n");
  scratch.write("sys/fs/cgroup/pods/one/memory.pressure", "some avg10=31.00 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(read_memory_stall_percent(scratch.path()), 31.0);
}

TEST(MemoryInfo, AFullCgroupHasNoHeadroom) {
  const Scratch scratch;
  write_meminfo(scratch);
  scratch.write("proc/self/cgroup", "0::/\n");
  scratch.write("sys/fs/cgroup/memory.max", std::to_string(100 * kMiB));
  scratch.write("sys/fs/cgroup/memory.current", std::to_string(130 * kMiB));
  EXPECT_EQ(read_memory_info(scratch.path())->headroom(), 0U);
}

TEST(MemoryInfo, DamagedMeminfoIsAnError) {
  const Scratch scratch;
  EXPECT_FALSE(read_memory_info(scratch.path()).is_ok());
  scratch.write("proc/meminfo", "MemTotal: lots\n");
  EXPECT_EQ(read_memory_info(scratch.path()).code(), Code::kInternal);
}

}  // namespace
}  // namespace entrepot::os
