#include "base/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/crc32c.h"

namespace entrepot {
namespace {

// The words after "flags" (x86_64) or "Features" (aarch64) of the first CPU, with a space on either side.
std::string kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line.substr(line.find(':') + 1) + " ";
  }
  return "";
}

bool listed(const std::string& flag) { return kernel_flags().find(" " + flag + " ") != std::string::npos; }

TEST(Cpu, AgreesWithTheKernel) {
  ASSERT_FALSE(kernel_flags().empty());
  EXPECT_EQ(cpu_has_avx2(), listed("avx2"));
  EXPECT_EQ(cpu_has_crc32c(), listed("sse4_2") || listed("crc32"));
}

TEST(Cpu, TheInstructionsAreUsedWhereTheyAre) {
  if (!cpu_has_crc32c()) GTEST_SKIP() << "this CPU has none";
  EXPECT_NE(crc32c_kind(), "table");
}

}  // namespace
}  // namespace entrepot
