#include "base/text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "os/log.h"

namespace entrepot {
namespace {

TEST(Text, ConcatWritesNumbersAsNumbers) {
  EXPECT_EQ(concat("slot ", std::uint8_t{65}, ", ", std::uint64_t{1} << 40, ", ", true), "slot 65, 1099511627776, 1");
}

TEST(Text, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(64ULL << 20), "64 MiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16 EiB");
}

TEST(Text, CountsAreSingularOrPlural) {
  EXPECT_EQ(count_of(0, "object"), "0 objects");
  EXPECT_EQ(count_of(1, "object"), "1 object");
  EXPECT_EQ(count_of(2, "object"), "2 objects");
}

TEST(Log, OneLineWithLevelAndRole) {
  set_log_role("keeper");
  ::testing::internal::CaptureStderr();
  log_info("first\nsecond ", 3);
  log_debug("not shown at the default level");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_NE(text.find("Z INFO keeper["), std::string::npos) << text;
  EXPECT_NE(text.find("first\\nsecond 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace entrepot
