#include "client/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace entrepot {
namespace {

TEST(Copy, EverySizeAndAlignmentArrivesWholeAndAlone) {
  std::mt19937 random(7);
  const std::size_t most = kStreamingMinBytes + 4096;
  std::vector<std::uint8_t> from(most + 256);
  for (auto& byte : from)
    byte = static_cast<std::uint8_t>(random());
  std::vector<std::uint8_t> to(most + 512);
  std::vector<std::size_t> sizes = {0, 1, 63, 64, 65, 4096, kStreamingMinBytes - 1, kStreamingMinBytes};
  for (int i = 0; i < 60; ++i)
    sizes.push_back(kStreamingMinBytes + random() % 4096);
  for (const std::size_t size : sizes) {
    const std::size_t source = random() % 130;
    const std::size_t target = 64 + random() % 130;
    std::fill(to.begin(), to.end(), std::uint8_t{0xa5});
    copy_payload(to.data() + target, from.data() + source, size);
    ASSERT_EQ(std::memcmp(to.data() + target, from.data() + source, size), 0) << size;
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(to[target - 1 - i], 0xa5) << size;
      ASSERT_EQ(to[target + size + i], 0xa5) << size;
    }
  }
}

TEST(Copy, SaysWhatItUses) { EXPECT_FALSE(copy_kind().empty()); }

}  // namespace
}  // namespace entrepot
