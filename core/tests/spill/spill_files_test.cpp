// Copies on a real disk: round trips at every alignment, detection of damage, failing disks.
#include <algorithm>
#include <filesystem>

#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

using Fault = FaultyIo::Fault;

// Spills a blob and loads it into a place surrounded by other bytes: only the blob's bytes change.
void round_trip(SpillHarness& store, std::uint32_t number, std::uint64_t offset, std::uint64_t length,
                std::uint64_t target_offset) {
  const std::uint64_t segment = (length + 131'072) / 65'536 * 65'536;
  const std::uint32_t source = store.segments.add(segment);
  const std::uint32_t target = store.segments.add(segment);
  const BlobKey key{number, 7};
  const BlobLocation from{source, offset, length, 1};
  const BlobLocation to{target, target_offset, length, 1};
  const BlobLocation around{target, 0, segment, 1};
  store.segments.fill({source, 0, segment, 1}, number);
  store.segments.fill(around, number + 1000);
  std::string expected = store.segments.bytes(around);
  expected.replace(target_offset, length, store.segments.bytes(from));
  const auto location = store.spill(key, from);
  ASSERT_TRUE(location.is_ok()) << location.status().to_string();
  const Status loaded = store.load(key, *location, to);
  ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
  EXPECT_TRUE(store.segments.bytes(around) == expected) << "offset " << offset << " length " << length;
  store.files->release(key, *location, length);
}

void all_alignments(SpillHarness& store) {
  std::uint32_t number = 1;
  for (const std::uint64_t length :
       {std::uint64_t{1}, std::uint64_t{100}, std::uint64_t{4095}, std::uint64_t{4096}, std::uint64_t{4097},
        std::uint64_t{65'536}, kMiB - 1, kMiB, kMiB + 1, 4 * kMiB, 4 * kMiB + 1, 9 * kMiB + 4097}) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{64}, std::uint64_t{4033}}) {
      round_trip(store, number++, offset, length, 8192 - offset / 2);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(store.files->stats().used_bytes, 0U);
}

TEST(SpillFiles, BringsBackEveryByteAtEveryAlignment) {
  SpillHarness store;
  store.must_open();
  all_alignments(store);
}

TEST(SpillFiles, WorksWithoutDirectIo) {
  SpillHarness store;
  store.io.refuses_direct = true;
  store.must_open();
  all_alignments(store);
}

TEST(SpillFiles, SeesAFlippedBitInEveryPage) {
  SpillHarness store;
  store.must_open();
  const std::uint64_t length = 2 * kMiB + 100;
  const BlobLocation from{store.segments.add(8 * kMiB), 0, length, 1};
  const BlobKey key{3, 1};
  store.segments.fill(from, 1);
  const auto location = store.spill(key, from);
  ASSERT_TRUE(location.is_ok());
  const auto place = unpack_location(*location, key);
  ASSERT_TRUE(place.is_ok());
  ASSERT_EQ(store.spill_paths().size(), 1U);
  const std::string path = store.spill_paths().front();
  ASSERT_TRUE(store.load(key, *location, from).is_ok());
  const std::uint64_t header = header_bytes(length);
  for (std::uint64_t page = 0; page < header + length; page += kSpillPage) {
    const std::uint64_t at = place->offset + page + (page * 7) % 100;  // the last page has only 100 bytes
    flip_byte(path, at);
    const Status loaded = store.load(key, *location, from);
    EXPECT_EQ(loaded.code(), Code::kCorruptData) << "page at " << page;
    EXPECT_NE(loaded.message().find(path), std::string::npos) << loaded.message();
    flip_byte(path, at);
  }
  EXPECT_TRUE(store.load(key, *location, from).is_ok());
}

TEST(SpillFiles, AWordOfAnotherBlobIsNoCopy) {
  SpillHarness store;
  store.options.limits.empty_file_ttl_ns = UINT64_MAX / 2;
  store.must_open();
  const BlobLocation from{store.segments.add(kMiB), 0, 1000, 1};
  const auto location = store.spill({5, 2}, from);
  ASSERT_TRUE(location.is_ok());
  EXPECT_EQ(store.load({5, 3}, *location, from).code(), Code::kObjectLost);
  EXPECT_EQ(store.load({6, 2}, *location, from).code(), Code::kObjectLost);
  EXPECT_EQ(store.load({5, 2}, *location ^ 1, from).code(), Code::kObjectLost);
  EXPECT_EQ(store.load({5, 2}, 0, from).code(), Code::kObjectLost);
  // The right place, but it meanwhile holds another blob's copy.
  store.files->release({5, 2}, *location, 1000);
  const auto other = store.spill({9, 9}, from);
  ASSERT_TRUE(other.is_ok());
  ASSERT_EQ(*unpack_location(*other, {9, 9}), *unpack_location(*location, {5, 2}));
  const Status stale = store.load({5, 2}, *location, from);
  EXPECT_EQ(stale.code(), Code::kCorruptData);
  EXPECT_NE(stale.message().find("blob 9"), std::string::npos) << stale.message();
}

TEST(SpillFiles, ReadsGoBeforeWrites) {
  SpillHarness store;
  store.options.threads = 1;
  store.must_open();
  const BlobLocation place{store.segments.add(8 * kMiB), 0, 8 * kMiB, 1};
  store.segments.fill(place, 1);
  const auto location = store.spill({1, 1}, place);
  ASSERT_TRUE(location.is_ok());
  const BlobLocation to{store.segments.add(8 * kMiB), 0, 8 * kMiB, 1};
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_TRUE(store.files->write(100 + i, {10 + i, 1}, place).is_ok());
  ASSERT_TRUE(store.files->read(200, {1, 1}, *location, to).is_ok());
  EXPECT_TRUE(store.wait(200).status.is_ok());
  EXPECT_GE(store.files->stats().pending_writes, 2U);
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_TRUE(store.wait(100 + i).status.is_ok());
  EXPECT_EQ(store.files->stats().written_bytes, 40 * kMiB);
  EXPECT_EQ(store.files->stats().read_bytes, 8 * kMiB);
}

TEST(SpillFiles, ADiskThatIsFullLeavesTheBlobAsItIs) {
  SpillHarness store;
  store.must_open();
  const BlobLocation small{store.segments.add(kMiB), 0, 100'000, 1};
  const BlobLocation large{store.segments.add(16 * kMiB), 0, 14 * kMiB, 1};
  store.segments.fill(large, 5);
  for (const BlobLocation& place : {small, large}) {
    store.io.fail_writes(Fault::kNoSpace);
    const auto refused = store.spill({1, 1}, place);
    EXPECT_EQ(refused.code(), Code::kStoreFull);
    EXPECT_EQ(store.files->stats().used_bytes, 0U);
    EXPECT_NE(store.files->stats().note.find("No space left"), std::string::npos);
    const auto again = store.spill({1, 1}, place);  // in the same file: it is not abandoned
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_TRUE(store.files->stats().note.empty());
    EXPECT_TRUE(store.load({1, 1}, *again, place).is_ok());
    store.files->release({1, 1}, *again, place.length);
  }
  EXPECT_EQ(store.io.injected, 2);
}

TEST(SpillFiles, AFileOnABrokenPieceOfDiskIsAbandoned) {
  SpillHarness store;
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 0, 6 * kMiB, 1};
  store.segments.fill(place, 5);
  const auto good = store.spill({1, 1}, place);
  ASSERT_TRUE(good.is_ok());
  for (int after = 0; after < 3; ++after) {  // fails the first piece, the second, the header
    store.io.fail_writes(Fault::kBroken, after);
    const auto failed = store.spill({2, 1}, place);
    EXPECT_EQ(failed.code(), Code::kInternal) << after;
    EXPECT_NE(failed.status().message().find("spill-"), std::string::npos) << failed.status().message();
  }
  EXPECT_EQ(store.io.injected, 3);
  const auto elsewhere = store.spill({2, 1}, place);
  ASSERT_TRUE(elsewhere.is_ok()) << elsewhere.status().to_string();
  EXPECT_NE(unpack_location(*elsewhere, {2, 1})->file, unpack_location(*good, {1, 1})->file);
  EXPECT_TRUE(store.load({1, 1}, *good, place).is_ok());  // existing copies stay readable
  store.files->release({1, 1}, *good, place.length);
  store.settle_manifest();
  EXPECT_EQ(store.spill_paths().size(), 1U);  // the abandoned files are gone
}

TEST(SpillFiles, ShortWritesAreFinished) {
  SpillHarness store;
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 64, 9 * kMiB + 77, 1};
  const BlobLocation aligned{store.segments.add(16 * kMiB), 0, 9 * kMiB + 77, 1};
  store.segments.fill(place, 5);
  store.segments.fill(aligned, 6);
  for (const BlobLocation& from : {place, aligned}) {
    store.io.fail_writes(Fault::kShort, 0, 3);
    const auto location = store.spill({1, 1}, from);
    ASSERT_TRUE(location.is_ok()) << location.status().to_string();
    const std::string expected = store.segments.bytes(from);
    store.segments.fill(from, 99);
    ASSERT_TRUE(store.load({1, 1}, *location, from).is_ok());
    EXPECT_TRUE(store.segments.bytes(from) == expected);
  }
  EXPECT_EQ(store.io.injected, 6);
}

TEST(SpillFiles, ATornWriteIsSeenWhenItIsReadBack) {
  SpillHarness store;
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 0, 6 * kMiB + 5, 1};
  for (int after = 0; after < 2; ++after) {
    store.segments.fill(place, 40 + static_cast<std::uint64_t>(after));
    store.io.fail_writes(Fault::kTorn, after);
    const auto location = store.spill({1, 1}, place);
    ASSERT_TRUE(location.is_ok());
    EXPECT_EQ(store.load({1, 1}, *location, place).code(), Code::kCorruptData);
  }
  EXPECT_EQ(store.io.injected, 2);
}

TEST(SpillFiles, AReadErrorIsToldAndReadingAgainWorks) {
  SpillHarness store;
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 0, 10 * kMiB, 1};
  store.segments.fill(place, 4);
  const auto location = store.spill({1, 1}, place);
  ASSERT_TRUE(location.is_ok());
  store.io.fail_reads(1);
  const Status failed = store.load({1, 1}, *location, place);
  EXPECT_EQ(failed.code(), Code::kInternal);
  EXPECT_NE(failed.message().find("Input/output error"), std::string::npos);
  EXPECT_TRUE(store.load({1, 1}, *location, place).is_ok());
}

TEST(SpillFiles, TheQuotaIsKeptAndNamed) {
  SpillHarness store(20 * kMiB);
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 0, 6 * kMiB, 1};
  std::vector<SpillLocation> kept;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto location = store.spill({i, 1}, place);
    if (!location.is_ok()) break;
    kept.push_back(*location);
  }
  EXPECT_GE(kept.size(), 2U);
  const auto refused = store.spill({9, 1}, {place.segment, 0, 16 * kMiB, 1});
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_NE(refused.status().message().find("20 MiB"), std::string::npos) << refused.status().message();
  std::uint64_t on_disk = 0;
  for (const std::string& path : store.spill_paths())
    on_disk += std::filesystem::file_size(path);
  EXPECT_LE(on_disk, 20 * kMiB);
  for (std::uint32_t i = 0; i < kept.size(); ++i)
    store.files->release({i, 1}, kept[i], 6 * kMiB);
  const auto fits_now = store.spill({9, 1}, {place.segment, 0, 16 * kMiB, 1});
  EXPECT_TRUE(fits_now.is_ok()) << fits_now.status().to_string();
}

TEST(SpillFiles, TheReserveOfTheDiskIsLeftAlone) {
  SpillHarness store;
  store.options.limits.reserve_bytes = 100 * kMiB;
  store.must_open();
  const BlobLocation place{store.segments.add(16 * kMiB), 0, 6 * kMiB, 1};
  store.io.free_bytes = 105 * kMiB;
  const auto refused = store.spill({1, 1}, place);
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_NE(refused.status().message().find("--spill-reserve"), std::string::npos) << refused.status().message();
  EXPECT_EQ(store.files->stats().note, refused.status().message());
  store.io.free_bytes = 108 * kMiB;
  EXPECT_TRUE(store.spill({1, 1}, place).is_ok());
  EXPECT_TRUE(store.files->stats().note.empty());
}

TEST(SpillFiles, SeveralFoldersTakeTurnsAndOneThatFailsIsPassedOver) {
  SpillHarness store(256 * kMiB, 3);
  store.must_open();
  const BlobLocation place{store.segments.add(kMiB), 0, 500'000, 1};
  for (std::uint32_t i = 0; i < 9; ++i)
    ASSERT_TRUE(store.spill({i, 1}, place).is_ok());
  std::vector<std::uint16_t> files;
  for (std::size_t folder = 0; folder < 3; ++folder)
    EXPECT_EQ(store.spill_paths(folder).size(), 1U) << folder;
  store.options.limits.backoff_ns = 0;
  store.io.refuses_files = true;
  const BlobLocation large{store.segments.add(16 * kMiB), 0, 16 * kMiB, 1};
  EXPECT_EQ(store.spill({50, 1}, large).code(), Code::kStoreFull);
  store.io.refuses_files = false;
  EXPECT_TRUE(store.spill({50, 1}, large).is_ok());
}

TEST(SpillFiles, ACleanEndLeavesNothing) {
  SpillHarness store(64 * kMiB, 2);
  store.must_open();
  const BlobLocation place{store.segments.add(kMiB), 0, 500'000, 1};
  ASSERT_TRUE(store.spill({1, 1}, place).is_ok());
  ASSERT_TRUE(store.spill({2, 1}, place).is_ok());
  store.files->discard_all();
  EXPECT_EQ(store.files->write(9, {3, 1}, place).code(), Code::kStoreUnavailable);
  store.die();
  for (std::size_t folder = 0; folder < 2; ++folder) {
    EXPECT_TRUE(std::filesystem::exists(store.folder(folder)));
    EXPECT_TRUE(std::filesystem::is_empty(store.folder(folder)));
  }
}

}  // namespace
}  // namespace entrepot::testing
