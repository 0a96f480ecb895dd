#include "spill/punched_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace entrepot {
namespace {

TEST(PunchedRanges, IsASetOfBytes) {
  constexpr std::uint64_t kBytes = 200;
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    PunchedRanges holes;
    std::vector<bool> model(kBytes, false);
    const auto count = [&](std::uint64_t offset, std::uint64_t bytes) {
      std::uint64_t punched = 0;
      for (std::uint64_t at = offset; at < offset + bytes; ++at)
        punched += model[at] ? 1 : 0;
      return punched;
    };
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t offset = random() % kBytes;
      const std::uint64_t bytes = random() % (kBytes - offset + 1);
      ASSERT_EQ(holes.punched_bytes(offset, bytes), count(offset, bytes)) << "round " << round << " step " << step;
      const bool add = random() % 2 == 0;
      if (add) {
        holes.add(offset, bytes);
      } else {
        holes.fill(offset, bytes);
      }
      for (std::uint64_t at = offset; at < offset + bytes; ++at)
        model[at] = add;
      ASSERT_EQ(holes.bytes(), count(0, kBytes)) << "round " << round << " step " << step;
    }
  }
}

}  // namespace
}  // namespace entrepot
