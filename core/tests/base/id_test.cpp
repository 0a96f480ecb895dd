#include "base/id.h"

#include <gtest/gtest.h>

#include <unordered_set>

#include "base/hash.h"
#include "os/random.h"

namespace entrepot {
namespace {

TEST(Id, HexRoundTrip) {
  const IdBytes id = os::random_id();
  const std::string text = to_hex(id);
  EXPECT_EQ(text.size(), 40U);
  EXPECT_EQ(*id_from_hex(text), id);
  EXPECT_EQ((*ObjectId::from_hex("00FFaB" + std::string(34, '1'))).hex(), "00ffab" + std::string(34, '1'));
}

TEST(Id, WrongTextNamesWhatIsWrong) {
  const Result<IdBytes> short_text = id_from_hex("abcd");
  EXPECT_EQ(short_text.code(), Code::kInvalidArgument);
  EXPECT_NE(short_text.status().message().find("4 characters"), std::string::npos);
  const Result<IdBytes> digit = id_from_hex(std::string(39, '0') + "g");
  EXPECT_EQ(digit.code(), Code::kInvalidArgument);
  EXPECT_NE(digit.status().message().find("character 39"), std::string::npos);
}

TEST(Id, BytesMustBeTwenty) {
  const std::array<std::uint8_t, 19> few{};
  EXPECT_EQ(id_from_bytes(few).code(), Code::kInvalidArgument);
  const std::array<std::uint8_t, 20> right{1};
  EXPECT_EQ((*id_from_bytes(right))[0], 1);
}

// The index stores hashes in shared memory, so changing the hash function changes the format.
TEST(Id, HashIsPartOfTheFormat) {
  IdBytes id{};
  EXPECT_EQ(hash_id(id), 0U);
  for (std::size_t i = 0; i < id.size(); ++i)
    id[i] = static_cast<std::uint8_t>(i * 11 + 1);
  EXPECT_EQ(hash_id(id), 0x5e5f2cd873b8345fULL);
  IdBytes other = id;
  for (std::size_t i = 0; i < id.size(); ++i) {
    other[i] ^= 1;
    EXPECT_NE(hash_id(other), hash_id(id)) << "byte " << i;
    other = id;
  }
}

TEST(Id, HashSpreadsNeighbours) {
  std::unordered_set<std::uint64_t> low;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    IdBytes id{};
    id[19] = static_cast<std::uint8_t>(i);
    id[18] = static_cast<std::uint8_t>(i >> 8);
    low.insert(hash_id(id) & 0xffff);
  }
  EXPECT_GT(low.size(), 3800U);  // 4096 balls in 65536 boxes leave about 3970 distinct ones
}

TEST(Hash, DependsOnLengthSeedAndBytes) {
  EXPECT_NE(hash_text(""), hash_text(std::string(1, '\0')));
  EXPECT_NE(hash_text("abcdefgh"), hash_text("abcdefgi"));
  EXPECT_NE(hash_text("abcdefghi"), hash_text("abcdefghj"));
  EXPECT_NE(hash_text("a", 1), hash_text("a", 2));
}

}  // namespace
}  // namespace entrepot
