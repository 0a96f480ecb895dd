#include "base/wire.h"

#include <gtest/gtest.h>

namespace entrepot {
namespace {

enum class Colour : std::uint16_t { kRed = 1, kBlue = 700 };

struct Inner {
  std::uint8_t small = 0;
  std::string text;
  template <class V>
  void fields(V& v) {
    v(small, text);
  }
  bool operator==(const Inner&) const = default;
};

struct Outer {
  std::uint64_t number = 0;
  Colour colour{};
  std::array<std::uint8_t, 3> bytes{};
  std::vector<Inner> inner;
  template <class V>
  void fields(V& v) {
    v(number, colour, bytes, inner);
  }
  bool operator==(const Outer&) const = default;
};

Outer sample() { return {1ULL << 50, Colour::kBlue, {1, 2, 3}, {{7, "seven"}, {8, ""}}}; }

TEST(Wire, RoundTrip) {
  Outer back;
  ASSERT_TRUE(from_wire(to_wire(sample()), back));
  EXPECT_EQ(back, sample());
}

TEST(Wire, EveryTruncationFails) {
  const std::vector<std::uint8_t> bytes = to_wire(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    Outer back;
    EXPECT_FALSE(from_wire(std::span(bytes).first(size), back)) << size << " of " << bytes.size();
  }
}

TEST(Wire, FieldsOfANewerVersionAreSkipped) {
  std::vector<std::uint8_t> bytes = to_wire(sample());
  bytes.push_back(42);
  Outer back;
  ASSERT_TRUE(from_wire(bytes, back));
  EXPECT_EQ(back, sample());
}

TEST(Wire, AClaimedCountThatTheBytesCannotHoldFails) {
  WireWriter writer;
  writer(std::uint64_t{0}, Colour::kRed, std::array<std::uint8_t, 3>{}, std::uint32_t{0xffff'fff0U});
  Outer back;
  EXPECT_FALSE(from_wire(writer.bytes(), back));
  EXPECT_TRUE(back.inner.empty());
}

}  // namespace
}  // namespace entrepot
