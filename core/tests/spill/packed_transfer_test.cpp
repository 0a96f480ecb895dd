// Compressed copies: every byte is restored, they take less space, damage is detected, and the next daemon can read
// them.
#include <algorithm>
#include <random>

#include "os/library.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

const SpillPacking kLz4{SpillCodec::kLz4, 0};
const SpillPacking kZstd{SpillCodec::kZstd, 1};

class SpillPacked : public SpillCopies {
 protected:
  void SetUp() override {
    store.options.packing = GetParam();
    store.must_open();
  }
  [[nodiscard]] std::uint64_t used() const { return store.files->stats().used_bytes; }
};

TEST_P(SpillPacked, EveryByteComesBackAndLessIsUsed) {
  std::uint32_t number = 1;
  for (const std::uint64_t length :
       {64 * 1024 - 1, 64 * 1024, 100'000, 1 << 20, (1 << 20) + 1, 4 << 20, (4 << 20) + 1, (9 << 20) + 4097}) {
    for (const std::uint64_t offset : {0, 64, 4096}) {
      const BlobLocation from = place(length, offset);
      store.segments.fill_text(from, number);
      const BlobKey key{number++, 7};
      const auto location = store.spill(key, from);
      ASSERT_TRUE(location.is_ok()) << location.status().to_string();
      if (length >= 64 * 1024) {
        EXPECT_LT(used(), extent_bytes(length) * 6 / 10) << length;
      }
      expect_loads(key, *location, from, offset);
      store.files->release(key, *location, length);
      EXPECT_EQ(used(), 0U);
    }
  }
  const SpillStats stats = store.files->stats();
  EXPECT_LT(stats.stored_bytes, stats.written_bytes * 6 / 10);
  EXPECT_EQ(stats.packing, to_text(GetParam()));
}

TEST_P(SpillPacked, AnythingAtAllComesBack) {
  std::mt19937_64 random(7);
  for (std::uint32_t round = 0; round < 40; ++round) {
    const std::uint64_t length = 1 + random() % (6 * kMiB);
    const BlobLocation from = place(length, random() % 2 * 64);
    store.segments.fill_text(from, round, random() % 4);
    const auto location = store.spill({round, 1}, from);
    ASSERT_TRUE(location.is_ok()) << location.status().to_string();
    expect_loads({round, 1}, *location, from);
    store.files->release({round, 1}, *location, length);
    ASSERT_EQ(used(), 0U);
  }
}

TEST_P(SpillPacked, WhatDoesNotPackIsWrittenAsItIs) {
  const BlobLocation from = place(5 * kMiB);
  store.segments.fill(from, 1);
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  EXPECT_EQ(used(), extent_bytes(5 * kMiB));
  EXPECT_EQ(store.files->stats().stored_bytes, store.files->stats().written_bytes);
  expect_loads({1, 1}, *location, from);
}

TEST_P(SpillPacked, BlocksThatDoNotPackLieAsTheyAre) {
  const BlobLocation from = place(12 * kMiB);
  store.segments.fill_text(from, 1, 3);  // every third MiB is incompressible
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  EXPECT_LT(used(), 9 * kMiB);
  EXPECT_GT(used(), 4 * kMiB);
  expect_loads({1, 1}, *location, from);
}

TEST_P(SpillPacked, DamageIsSeenInEveryPage) {
  const BlobLocation from = place(2 * kMiB + 100);
  store.segments.fill_text(from, 1);
  const auto location = store.spill({3, 1}, from);
  ASSERT_TRUE(location.is_ok());
  const SpillPosition at = position_in(*location);
  const std::string path = store.spill_paths().front();
  const std::uint64_t stored = store.files->stats().stored_bytes;
  for (std::uint64_t byte = 0; byte < header_bytes(from.length) + stored; byte += kSpillPage) {
    flip_byte(path, at.offset + byte);
    const Status loaded = store.load({3, 1}, *location, place(from.length));
    EXPECT_EQ(loaded.code(), Code::kCorruptData) << "at " << byte;
    flip_byte(path, at.offset + byte);
  }
  expect_loads({3, 1}, *location, from);
}

TEST_P(SpillPacked, AWriteThatFailsLeavesNothing) {
  const BlobLocation from = place(9 * kMiB);
  store.segments.fill_text(from, 1);
  for (int after = 0; after < 4; ++after) {
    store.io.fail_writes(FaultyIo::Fault::kNoSpace, after);
    const auto location = store.spill({1, 1}, from);
    store.io.heal();
    if (location.is_ok()) {
      EXPECT_GT(after, 2);  // three pieces and the header
      store.files->release({1, 1}, *location, from.length);
    }
    EXPECT_EQ(used(), 0U);
    store.die();
    store.must_open();  // reopen: a directory that failed is not used for a while
    store.files->adopt_end();
  }
  store.io.fail_writes(FaultyIo::Fault::kTorn, 1);
  const auto torn = store.spill({1, 1}, from);
  store.io.heal();
  ASSERT_TRUE(torn.is_ok());
  EXPECT_EQ(store.load({1, 1}, *torn, place(from.length)).code(), Code::kCorruptData);
}

// The next daemon has another setting, and the manifest lacks some copies: their headers describe them.
TEST_P(SpillPacked, WhoeverFollowsKnowsThemWhateverItsOwnSettingIs) {
  std::vector<BlobLocation> froms;
  std::vector<SpillLocation> locations;
  for (std::uint32_t i = 0; i < 4; ++i) {
    froms.push_back(place(3 * kMiB + i));
    store.segments.fill_text(froms.back(), i, i == 3 ? 1 : 0);  // the last one does not compress
    const auto location = store.spill({i, 1}, froms.back());
    ASSERT_TRUE(location.is_ok());
    locations.push_back(*location);
    if (i % 2 != 0) continue;
    SpilledObject object;
    object.id = {static_cast<std::uint8_t>(i)};
    object.generation = 1;
    object.blobs = {{{i, 1}, froms.back().length, *location}};
    store.files->remember(object);
  }
  store.settle_manifest();
  const std::uint64_t before = used();
  store.die();
  store.options.packing = {};
  store.must_open();
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_TRUE(store.files->adopt({i, 1}, locations[i], froms[i].length).is_ok());
  store.files->adopt_end();
  EXPECT_EQ(used(), before);
  for (std::uint32_t i = 0; i < 4; ++i) {
    expect_loads({i, 1}, locations[i], froms[i]);
    store.files->release({i, 1}, locations[i], froms[i].length);
  }
  store.settle_manifest();
  EXPECT_EQ(used(), 0U);
}

TEST_P(SpillPacked, AFreshStoreTakesThemOver) {
  const BlobLocation from = place(3 * kMiB);
  store.segments.fill_text(from, 5);
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  SpilledObject object;
  object.id = {1};
  object.generation = 1;
  object.blobs = {{{1, 1}, from.length, *location}};
  store.files->remember(object);
  store.settle_manifest();
  const std::uint64_t before = used();
  for (std::uint8_t life = 1; life <= 2; ++life) {
    store.die();
    store.options.instance = {life, 9};
    store.must_open();
    auto recovered = store.files->recover();
    ASSERT_EQ(recovered.size(), 1U);
    const BlobKey now{50U + life, 3};
    const auto moved = store.files->rebind(recovered[0].blobs[0], now);
    ASSERT_TRUE(moved.is_ok()) << moved.status().to_string();
    recovered[0].blobs[0].key = now;
    recovered[0].blobs[0].location = *moved;
    store.files->remember(recovered[0]);
    store.files->adopt_end();
    store.settle_manifest();
    EXPECT_EQ(used(), before);
    expect_loads(now, *moved, from);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, SpillPacked, ::testing::Values(kLz4, kZstd),
                         [](const auto& tested) { return tested.param == kLz4 ? "lz4" : "zstd"; });

TEST(SpillPacking, IsReadAndWritten) {
  for (const char* text : {"none", "lz4", "zstd:1", "zstd:19"}) {
    const auto packing = parse_packing(text);
    ASSERT_TRUE(packing.is_ok()) << text;
    EXPECT_EQ(to_text(*packing), text);
  }
  EXPECT_EQ(*parse_packing("zstd"), kZstd);
  for (const char* text : {"", "gzip", "zstd:", "zstd:0", "zstd:20", "zstd:3x", "lz4:3", "ZSTD"}) {
    const auto packing = parse_packing(text);
    EXPECT_EQ(packing.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(packing.status().message().find("zstd:LEVEL"), std::string::npos);
  }
}

TEST(SpillPacking, ALibraryThatIsNotThereIsSaid) {
  const auto library = os::Library::open("libnobody-has-this.so.7");
  EXPECT_EQ(library.code(), Code::kStoreUnavailable);
  EXPECT_NE(library.status().message().find("libnobody-has-this.so.7"), std::string::npos);
}

TEST(SpillPacking, RubbishDoesNotUnpack) {
  for (const SpillPacking& packing : {kLz4, kZstd}) {
    const auto packer = open_packer(packing);
    ASSERT_TRUE(packer.is_ok()) << packer.status().to_string();
    std::mt19937_64 random(3);
    std::vector<std::byte> in(1000);
    std::vector<std::byte> out(5000);
    for (int round = 0; round < 2000; ++round) {
      std::generate(in.begin(), in.end(), [&] { return static_cast<std::byte>(random()); });
      EXPECT_FALSE((*packer)->unpack(in.data(), random() % in.size(), out.data(), out.size()));
    }
  }
}

}  // namespace
}  // namespace entrepot::testing
