#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace entrepot {
namespace {

// From RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  const std::vector<std::uint8_t> zeros(32, 0);
  const std::vector<std::uint8_t> ones(32, 0xff);
  std::vector<std::uint8_t> counting(32);
  std::iota(counting.begin(), counting.end(), std::uint8_t{0});
  for (const auto crc : {&crc32c, &crc32c_portable}) {
    EXPECT_EQ(crc(zeros.data(), zeros.size(), 0), 0x8a9136aaU);
    EXPECT_EQ(crc(ones.data(), ones.size(), 0), 0x62a8ab43U);
    EXPECT_EQ(crc(counting.data(), counting.size(), 0), 0x46dd794eU);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283U);
  }
}

TEST(Crc32c, HardwareAndTableAgreeOnEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> data(600);
  for (std::uint8_t& byte : data)
    byte = static_cast<std::uint8_t>(random());
  for (std::size_t start = 0; start < 8; ++start) {
    for (std::size_t length = 0; length + start <= data.size(); length += 7) {
      ASSERT_EQ(crc32c(data.data() + start, length), crc32c_portable(data.data() + start, length));
    }
  }
}

TEST(Crc32c, LargeDataIsSummedInPartsWithTheSameResult) {
  std::mt19937 random(2);
  std::vector<std::uint8_t> data(100'000);
  for (std::uint8_t& byte : data)
    byte = static_cast<std::uint8_t>(random());
  for (const std::size_t parts : {1, 2, 5}) {
    for (const std::size_t more : {0, 1, 7, 8, 4095, 12287}) {
      for (const std::size_t start : {0, 1, 5}) {
        const std::size_t length = parts * 3 * 4096 + more;
        ASSERT_EQ(crc32c(data.data() + start, length, 77), crc32c_portable(data.data() + start, length, 77))
            << length << " from " << start;
        ASSERT_EQ(crc32c(data.data() + start, length - 1), crc32c_portable(data.data() + start, length - 1));
      }
    }
  }
}

TEST(Crc32c, PiecesEqualTheWhole) {
  const std::string text = "metadata tree of an object";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t first = crc32c(text.data(), cut);
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, first), crc32c(text.data(), text.size()));
  }
}

TEST(Crc32c, EverySingleBitMatters) {
  std::array<std::uint8_t, 64> data{};
  const std::uint32_t crc = crc32c(data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<std::uint8_t>(data[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_NE(crc32c(data.data(), data.size()), crc);
    data[bit / 8] = 0;
  }
}

TEST(Crc32c, NamesItsKind) {
  const std::string_view kind = crc32c_kind();
  EXPECT_TRUE(kind == "sse4.2" || kind == "armv8" || kind == "table") << kind;
}

}  // namespace
}  // namespace entrepot
