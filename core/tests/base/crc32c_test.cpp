#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace entrepot {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t count) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> data(count);
  for (std::uint8_t& byte : data)
    byte = static_cast<std::uint8_t>(random());
  return data;
}

// Every implementation that this CPU supports, and crc32c() itself.
std::vector<Crc32cImplementation> all_ways() {
  const std::span<const Crc32cImplementation> available = crc32c_implementations();
  std::vector<Crc32cImplementation> implementations(available.begin(), available.end());
  implementations.push_back({"crc32c()", &crc32c});
  return implementations;
}

std::uint32_t by_table(const void* data, std::size_t bytes, std::uint32_t seed) {
  return crc32c_implementations().back().sum(data, bytes, seed);
}

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  const std::vector<std::uint8_t> zeros(32, 0);
  const std::vector<std::uint8_t> ones(32, 0xff);
  std::vector<std::uint8_t> counting(32);
  std::iota(counting.begin(), counting.end(), std::uint8_t{0});
  for (const Crc32cImplementation& way : all_ways()) {
    EXPECT_EQ(way.sum(zeros.data(), zeros.size(), 0), 0x8a9136aaU) << way.name;
    EXPECT_EQ(way.sum(ones.data(), ones.size(), 0), 0x62a8ab43U) << way.name;
    EXPECT_EQ(way.sum(counting.data(), counting.size(), 0), 0x46dd794eU) << way.name;
    EXPECT_EQ(way.sum("123456789", 9, 0), 0xe3069283U) << way.name;
  }
}

TEST(Crc32c, AllWaysAgreeOnLengthsAndAlignments) {
  const std::vector<std::uint8_t> data = random_bytes(3000);
  for (const Crc32cImplementation& way : all_ways()) {
    for (std::size_t start = 0; start < 8; ++start) {
      for (std::size_t length = 0; length + start <= data.size(); length += 7) {
        ASSERT_EQ(way.sum(data.data() + start, length, 0), by_table(data.data() + start, length, 0))
            << length << " from " << start << " by " << way.name;
      }
    }
  }
}

TEST(Crc32c, LargeDataIsSummedInPartsWithTheSameResult) {
  const std::vector<std::uint8_t> data = random_bytes(100'000);
  for (const Crc32cImplementation& way : all_ways()) {
    for (const std::size_t parts : {1, 2, 5}) {
      for (const std::size_t more : {0, 1, 7, 8, 255, 256, 4095, 12287}) {
        for (const std::size_t start : {0, 1, 5}) {
          for (const std::uint32_t seed : {0U, 77U}) {
            const std::size_t length = parts * 3 * 4096 + more;
            for (const std::size_t bytes : {length, length - 1}) {
              ASSERT_EQ(way.sum(data.data() + start, bytes, seed), by_table(data.data() + start, bytes, seed))
                  << bytes << " from " << start << " by " << way.name;
            }
          }
        }
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

TEST(Crc32c, NamesItsWays) {
  for (const Crc32cImplementation& way : crc32c_implementations()) {
    const std::string_view name = way.name;
    EXPECT_TRUE(name == "vpclmulqdq" || name == "sse4.2" || name == "armv8" || name == "table") << name;
  }
  EXPECT_EQ(crc32c_implementations().back().name, "table");
}

}  // namespace
}  // namespace entrepot
