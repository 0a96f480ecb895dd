// Extents of the spill files against a model, and creation and deletion of the files.
#include "spill/space.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "os/clock.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

class Space {
 public:
  explicit Space(std::uint64_t quota, std::size_t count = 1, std::uint64_t empty_file_ttl_ns = 0,
                 std::uint64_t backoff_ns = 0) {
    std::vector<SpillFolder> folders;
    for (std::size_t i = 0; i < count; ++i) {
      auto opened = open_spill_folder(io, scratch.path("f" + std::to_string(i)), "/run/s.sock", 0, 0);
      EXPECT_TRUE(opened.is_ok());
      paths.push_back(opened->path);
      folders.push_back(std::move(opened).value());
    }
    space = std::make_unique<SpillSpace>(io, std::move(folders), SpillLimits{quota, 0, empty_file_ttl_ns, backoff_ns});
  }
  [[nodiscard]] std::uint64_t on_disk() const {
    std::uint64_t bytes = 0;
    for (const std::string& path : paths) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        struct stat info{};
        EXPECT_EQ(::stat(entry.path().c_str(), &info), 0);
        bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
      }
    }
    return bytes;
  }

  Scratch scratch;
  FaultyIo io;
  std::vector<std::string> paths;
  std::unique_ptr<SpillSpace> space;
};

TEST(SpillSpace, NeverGivesAPlaceTwiceAndKeepsItsQuota) {
  constexpr std::uint64_t kQuota = 256 * kMiB;
  Space test(kQuota, 2);
  struct Held {
    SpillPosition place;
    std::uint64_t bytes;
  };
  std::vector<Held> held;
  std::mt19937_64 random(7);
  std::uint64_t used = 0;
  int refused = 0;
  for (int step = 0; step < 4000; ++step) {
    const bool take = held.empty() || random() % 100 < (step / 500 % 2 == 0 ? 70 : 40);
    if (take) {
      const std::uint64_t bytes = extent_bytes(std::uint64_t{1} << (random() % 25));
      const auto extent = test.space->allocate(bytes);
      if (!extent.is_ok()) {
        EXPECT_EQ(extent.code(), Code::kStoreFull);
        ++refused;
        continue;
      }
      const SpillPosition place{extent->file->number, extent->offset};
      EXPECT_EQ(extent->offset % kSpillPage, 0U);
      EXPECT_LE(extent->offset + bytes, extent->file->bytes);
      for (const Held& other : held) {
        const bool apart = other.place.file != place.file || other.place.offset + other.bytes <= place.offset ||
                           place.offset + bytes <= other.place.offset;
        ASSERT_TRUE(apart) << "step " << step;
      }
      held.push_back({place, bytes});
      used += bytes;
    } else {
      const std::size_t which = random() % held.size();
      const Held gone = held[which];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      ASSERT_TRUE(test.space->release(gone.place, gone.bytes).is_ok());
      EXPECT_FALSE(test.space->release(gone.place, gone.bytes).is_ok());  // not twice
      used -= gone.bytes;
    }
    EXPECT_EQ(test.space->used_bytes(), used);
    EXPECT_LE(test.space->file_bytes(), kQuota);
    if (step % 100 == 0) {
      (void)test.space->sweep();
      EXPECT_LE(test.on_disk(), test.space->file_bytes() + kQuota / 100);  // the file system's own blocks
    }
  }
  EXPECT_GT(refused, 0);
  for (const Held& extent : held)
    ASSERT_TRUE(test.space->release(extent.place, extent.bytes).is_ok());
  (void)test.space->sweep();
  EXPECT_EQ(test.space->used_bytes(), 0U);
  EXPECT_LE(test.on_disk(), kQuota / 100);
}

TEST(SpillSpace, ALargeCopyHasAFileOfItsOwnThatGoesWithIt) {
  Space test(256 * kMiB);
  const auto small = test.space->allocate(kMiB);
  const auto large = test.space->allocate(100 * kMiB);
  ASSERT_TRUE(small.is_ok() && large.is_ok());
  EXPECT_NE(small->file->number, large->file->number);
  EXPECT_EQ(large->file->bytes, 100 * kMiB);
  ASSERT_TRUE(test.space->release({large->file->number, large->offset}, 100 * kMiB).is_ok());
  EXPECT_TRUE(test.space->wants_sweep());
  (void)test.space->sweep();
  EXPECT_LE(test.on_disk(), 17 * kMiB);
}

TEST(SpillSpace, EmptyFilesAreKeptForAWhile) {
  constexpr std::uint64_t kKeepNs = 200'000'000;
  Space test(256 * kMiB, 1, kKeepNs);
  const auto first = test.space->allocate(kMiB);
  ASSERT_TRUE(first.is_ok());
  const std::uint16_t number = first->file->number;
  const std::uint64_t before = os::monotonic_ns();
  ASSERT_TRUE(test.space->release({number, 0}, kMiB).is_ok());
  EXPECT_TRUE(test.space->wants_sweep());
  const std::uint64_t again = test.space->sweep();
  EXPECT_FALSE(test.space->wants_sweep());
  EXPECT_GE(again, before + kKeepNs);
  EXPECT_EQ(test.space->file_bytes(), 16 * kMiB);
  while (os::monotonic_ns() < again)
    os::pause_ms(5);
  EXPECT_EQ(test.space->sweep(), UINT64_MAX);
  EXPECT_EQ(test.space->file_bytes(), 0U);
  EXPECT_LE(test.on_disk(), kMiB);
}

TEST(SpillSpace, FilesThatAreFoundStayUntilAdoptionEnds) {
  Space test(256 * kMiB);
  const auto first = test.space->allocate(kMiB);
  const auto second = test.space->allocate(100 * kMiB);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  const SpillPosition place{first->file->number, first->offset};
  test.space.reset();
  std::vector<SpillFolder> folders;
  folders.push_back(open_spill_folder(test.io, test.scratch.path("f0"), "/run/s.sock", 0, 0).take());
  SpillSpace next(test.io, std::move(folders), SpillLimits{256 * kMiB, 0, 0, 0});
  ASSERT_TRUE(next.open_existing().is_ok());
  EXPECT_EQ(next.sweep(), UINT64_MAX);  // a worker may sweep before adoption ends
  ASSERT_TRUE(next.adopt(place, kMiB).is_ok());
  next.adopt_end();
  (void)next.sweep();
  EXPECT_EQ(next.file_bytes(), first->file->bytes);
  EXPECT_TRUE(next.find(place, kMiB).is_ok());
}

TEST(SpillSpace, EmptyFilesMakeRoomForALargeCopy) {
  Space test(64 * kMiB);
  std::vector<SpillExtent> all;
  for (int i = 0; i < 4; ++i) {
    auto extent = test.space->allocate(8 * kMiB);
    ASSERT_TRUE(extent.is_ok());
    all.push_back(*extent);
  }
  EXPECT_EQ(test.space->allocate(60 * kMiB).code(), Code::kStoreFull);
  for (const SpillExtent& extent : all)
    ASSERT_TRUE(test.space->release({extent.file->number, extent.offset}, extent.bytes).is_ok());
  EXPECT_TRUE(test.space->allocate(60 * kMiB).is_ok());
}

TEST(SpillSpace, WhatIsFreeInPiecesMakesRoomToo) {
  Space test(64 * kMiB);
  std::vector<SpillExtent> all;
  while (true) {
    auto extent = test.space->allocate(kMiB);
    if (!extent.is_ok()) break;
    all.push_back(*extent);
  }
  ASSERT_EQ(all.size(), 64U);
  for (std::size_t i = 0; i < all.size(); i += 2)
    ASSERT_TRUE(test.space->release({all[i].file->number, all[i].offset}, kMiB).is_ok());
  const auto large = test.space->allocate(20 * kMiB);  // no two adjacent extents are free
  ASSERT_TRUE(large.is_ok()) << large.status().to_string();
  EXPECT_LE(test.space->file_bytes(), 64 * kMiB);
  // 12 of the 32 MiB that were free remain, in holes that are allocated space again.
  int more = 0;
  while (test.space->allocate(kMiB).is_ok())
    ++more;
  EXPECT_EQ(more, 12);
  EXPECT_LE(test.on_disk(), 65 * kMiB);
}

TEST(SpillSpace, AFileThatCannotBeRemovedDoesNotStopTheOthers) {
  Space test(256 * kMiB);
  const auto large = test.space->allocate(50 * kMiB);
  ASSERT_TRUE(large.is_ok());
  ASSERT_TRUE(test.space->release({large->file->number, 0}, 50 * kMiB).is_ok());
  test.io.refuses_removal = true;
  (void)test.space->sweep();
  test.io.refuses_removal = false;
  const auto next = test.space->allocate(50 * kMiB);
  ASSERT_TRUE(next.is_ok()) << next.status().to_string();
  EXPECT_NE(next->file->number, large->file->number);
}

TEST(SpillSpace, AFolderThatIsLeftAloneSaysWhyHoweverOftenItIsAsked) {
  Space test(256 * kMiB, 2, 0, 60'000'000'000);
  test.io.refuses_files = true;
  EXPECT_EQ(test.space->allocate(kMiB).code(), Code::kStoreFull);
  const std::string first = test.space->allocate(kMiB).status().message();
  EXPECT_NE(first.find("is temporarily not used"), std::string::npos) << first;
  EXPECT_NE(first.find("No space left on device"), std::string::npos) << first;
  EXPECT_EQ(test.space->note(), first);
  // The directories alternate, so the next error is the other directory's.
  (void)test.space->allocate(kMiB);
  EXPECT_EQ(test.space->allocate(kMiB).status().message(), first);
}

TEST(SpillExtentFormat, LocationsHoldEveryPlace) {
  for (const std::uint16_t file : {std::uint16_t{1}, std::uint16_t{77}, std::uint16_t{UINT16_MAX}}) {
    for (const std::uint64_t page : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{UINT32_MAX}}) {
      const SpillPosition place{file, page * kSpillPage};
      const auto location = pack_location(place, {4, 5});
      EXPECT_NE(location, 0U);
      const auto back = unpack_location(location, {4, 5});
      ASSERT_TRUE(back.is_ok());
      EXPECT_EQ(*back, place);
    }
  }
}

TEST(SpillExtentFormat, HeadersSayWhatDoesNotFit) {
  const std::uint64_t length = 3 * kSpillBlockBytes + 1;
  SpillHeader header{{{1}, {2, 3}}, length, SpillCodec::kNone, {1, 2, 3, 4}, {}, {}};
  std::vector<std::byte> bytes(header_bytes(length));
  encode_header(header, bytes);
  const auto good = decode_header(bytes, length);
  ASSERT_TRUE(good.is_ok()) << good.status().to_string();
  EXPECT_EQ(good->identity, header.identity);
  EXPECT_EQ(good->block_crcs, header.block_crcs);
  EXPECT_EQ(decode_header(bytes, length - 1).code(), Code::kCorruptData);
  bytes[8] = std::byte{9};
  const auto newer = decode_header(bytes, length);
  EXPECT_EQ(newer.code(), Code::kVersionMismatch);
  EXPECT_NE(newer.status().message().find("format 9"), std::string::npos);
  // A list of checksums that does not fit in one page.
  EXPECT_EQ(header_bytes(1050 * kSpillBlockBytes), 3 * kSpillPage);
}

}  // namespace
}  // namespace entrepot::testing
