#include "daemon/page_choice.h"

#include <gtest/gtest.h>

namespace entrepot {
namespace {

constexpr std::uint64_t kHugePage = os::kHugePageBytes;
constexpr std::uint64_t kMs = 1'000'000;

TEST(PageChoice, StaysWithHugePagesAsLongAsTheyAreQuick) {
  PageChoice choice;
  for (int step = 0; step < 100; ++step) {
    choice.took_huge(4 * kHugePage, 2 * kMs);
    EXPECT_TRUE(choice.is_huge());
  }
}

TEST(PageChoice, TakesSmallPagesAfterOneSlowStep) {
  PageChoice choice;
  choice.took_huge(4 * kHugePage, kMs);
  choice.took_huge(4 * kHugePage, 16 * kMs);
  EXPECT_FALSE(choice.is_huge());
  choice.took_small(8 * kHugePage, 4 * kMs);
  EXPECT_FALSE(choice.is_huge());
}

TEST(PageChoice, ReturnsToHugePagesWhileSmallOnesAreNoQuicker) {
  PageChoice choice;
  choice.took_huge(kHugePage, 3 * kMs);
  choice.took_small(8 * kHugePage, 24 * kMs);
  EXPECT_TRUE(choice.is_huge());
  choice.took_huge(kHugePage, 9 * kMs);
  EXPECT_FALSE(choice.is_huge()) << "now small ones are quicker";
}

TEST(PageChoice, LearnsNothingFromLessThanAHugePage) {
  PageChoice choice;
  choice.took_huge(kHugePage, 3 * kMs);
  choice.took_small(4096, kMs);
  EXPECT_FALSE(choice.is_huge());
}

}  // namespace
}  // namespace entrepot
