#include "base/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/crc32c.h"

namespace entrepot {
namespace {

// Value of the first /proc/cpuinfo line that starts with `name`, padded with a space on both sides; empty if there is
// none.
std::string cpuinfo_field(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return line.substr(line.find(':') + 1) + " ";
  }
  return "";
}

// "flags" on x86_64, "Features" on aarch64.
std::string kernel_flags() { return cpuinfo_field("flags") + cpuinfo_field("Features"); }

bool listed(const std::string& flag) { return kernel_flags().find(" " + flag + " ") != std::string::npos; }

TEST(Cpu, AgreesWithTheKernel) {
  ASSERT_FALSE(kernel_flags().empty());
  EXPECT_EQ(cpu_has_avx2(), listed("avx2"));
  EXPECT_EQ(cpu_has_crc32c(), listed("sse4_2") || listed("crc32"));
  EXPECT_EQ(cpu_has_wide_products(), listed("vpclmulqdq") && listed("pclmulqdq") && listed("avx2"));
  EXPECT_EQ(cpu_is_amd(), cpuinfo_field("vendor_id") == " AuthenticAMD ");
}

TEST(Cpu, TheInstructionsAreUsedWhereTheyAre) {
  if (!cpu_has_crc32c()) GTEST_SKIP() << "this CPU has none";
  EXPECT_NE(crc32c_implementations().front().name, "table");
  EXPECT_EQ(crc32c_implementations().front().name == "vpclmulqdq", cpu_has_wide_products());
}

}  // namespace
}  // namespace entrepot
