// A spill directory that is removed while the store runs is recreated, with the same checks as at startup.
#include <sys/stat.h>

#include <filesystem>

#include "base/text.h"
#include "os/clock.h"
#include "os/files.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

namespace fs = std::filesystem;

class SpillRemoved : public ::testing::Test {
 protected:
  void SetUp() override { store.must_open(); }

  BlobLocation place(std::uint64_t length = kMiB) { return {store.segments.add(length), 0, length, 1}; }
  // Fills and spills blob `number`.
  Result<SpillLocation> spill(std::uint32_t number) {
    const BlobLocation from = place();
    store.segments.fill(from, number);
    originals[number] = from;
    return store.spill({number, 1}, from);
  }
  void expect_loads(std::uint32_t number, SpillLocation location) {
    const BlobLocation to = place();
    const Status loaded = store.load({number, 1}, location, to);
    ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
    EXPECT_TRUE(store.segments.bytes(to) == store.segments.bytes(originals[number])) << "blob " << number;
  }
  void remember(std::uint8_t number, SpillLocation location) {
    SpilledObject object;
    object.id = {number};
    object.generation = 1;
    object.blobs = {{{number, 1}, kMiB, location}};
    store.files->remember(object);
  }
  void remove_folder(std::size_t number = 0) { fs::remove_all(store.folder(number)); }

  SpillHarness store{64 * kMiB};
  std::map<std::uint32_t, BlobLocation> originals;
};

TEST_F(SpillRemoved, AFolderIsMadeAgainAndWhatItHeldStaysReadable) {
  const auto before = spill(1);
  ASSERT_TRUE(before.is_ok());
  remove_folder();
  expect_loads(1, *before);
  const auto after = spill(2);
  ASSERT_TRUE(after.is_ok()) << after.status().to_string();
  EXPECT_NE(position_in(*before).file, position_in(*after).file);
  ASSERT_EQ(store.spill_paths().size(), 1U);
  for (const std::string& folder : {store.folder(), store.subfolder()}) {
    struct stat info{};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U) << folder;
  }
  expect_loads(1, *before);
  expect_loads(2, *after);
  EXPECT_TRUE(store.files->stats().note.empty()) << store.files->stats().note;
  // No other store can take the directory.
  EXPECT_EQ(open_spill_folder(store.io, store.folder(), store.options.socket_path, 0, 0).code(),
            Code::kStoreUnavailable);
}

TEST_F(SpillRemoved, TheNextDaemonFindsWhatWasWrittenSince) {
  const auto before = spill(1);
  ASSERT_TRUE(before.is_ok());
  remember(1, *before);
  store.settle_manifest();
  remove_folder();
  const auto after = spill(2);
  ASSERT_TRUE(after.is_ok()) << after.status().to_string();
  remember(2, *after);
  store.settle_manifest();
  store.die();
  store.options.instance = {9};  // the keeper died too
  store.must_open();
  const std::vector<SpilledObject> recovered = store.files->recover();
  ASSERT_EQ(recovered.size(), 2U);
  const Status gone = store.files->rebind(recovered[0].blobs[0], {7, 1}).status();
  EXPECT_EQ(gone.code(), Code::kObjectLost);
  EXPECT_NE(gone.message().find("the file is gone"), std::string::npos) << gone.message();
  const auto location = store.files->rebind(recovered[1].blobs[0], {8, 1});
  ASSERT_TRUE(location.is_ok()) << location.status().to_string();
  store.files->adopt_end();
  const BlobLocation to = place();
  ASSERT_TRUE(store.load({8, 1}, *location, to).is_ok());
  EXPECT_TRUE(store.segments.bytes(to) == store.segments.bytes(originals[2]));
}

TEST_F(SpillRemoved, TheFilesOfTheFormerFolderGoWhenTheyAreEmpty) {
  const auto before = spill(1);
  ASSERT_TRUE(before.is_ok());
  remove_folder();
  const auto after = spill(2);
  ASSERT_TRUE(after.is_ok());
  store.files->release({1, 1}, *before, kMiB);
  store.settle_manifest();
  EXPECT_EQ(store.files->stats().used_bytes, extent_bytes(kMiB));
  EXPECT_EQ(store.spill_paths().size(), 1U);
  expect_loads(2, *after);
}

TEST_F(SpillRemoved, SomebodyElsesFolderInItsPlaceIsNotTaken) {
  const auto before = spill(1);
  ASSERT_TRUE(before.is_ok());
  remove_folder();
  {
    const auto other = open_spill_folder(store.io, store.folder(), store.options.socket_path, 0, 0);
    ASSERT_TRUE(other.is_ok());
    const auto refused = spill(2);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().message().find("another daemon"), std::string::npos) << refused.status().message();
    EXPECT_TRUE(store.spill_paths().empty());
  }
  EXPECT_TRUE(spill(3).is_ok());
  expect_loads(1, *before);
}

TEST_F(SpillRemoved, ALinkOrAFolderOfOthersInItsPlaceIsNotTaken) {
  remove_folder();
  const std::string elsewhere = store.scratch.path("elsewhere");
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, store.folder());
  const auto link = spill(1);
  ASSERT_FALSE(link.is_ok());
  EXPECT_NE(link.status().message().find("a link is not accepted"), std::string::npos) << link.status().message();
  EXPECT_TRUE(fs::is_empty(elsewhere));
  fs::remove(store.folder());
  fs::create_directory(store.folder());
  ASSERT_EQ(::chmod(store.folder().c_str(), 0777), 0);
  const auto open = spill(2);
  ASSERT_FALSE(open.is_ok());
  EXPECT_NE(open.status().message().find("other users can write"), std::string::npos) << open.status().message();
  remove_folder();
  EXPECT_TRUE(spill(3).is_ok());
}

TEST_F(SpillRemoved, OneThatCannotBeMadeAgainIsTriedAgainLater) {
  store.die();
  store.options.limits.backoff_ns = 50'000'000;
  store.must_open();
  remove_folder();
  fs::create_directory_symlink(store.scratch.path("nowhere"), store.folder());
  ASSERT_FALSE(spill(1).is_ok());
  fs::remove(store.folder());
  const auto deadline = os::Deadline::after_ms(20'000);
  std::uint32_t number = 2;
  while (!spill(number).is_ok()) {
    ASSERT_FALSE(deadline.passed()) << store.files->stats().note;
    ++number;
  }
  EXPECT_EQ(store.spill_paths().size(), 1U);
}

TEST_F(SpillRemoved, OnlyTheOneOfSeveralThatIsGoneIsMadeAgain) {
  SpillHarness two(64 * kMiB, 2);
  two.must_open();
  const auto spill_one = [&](std::uint32_t number) {
    const BlobLocation from{two.segments.add(kMiB), 0, kMiB, 1};
    return two.spill({number, 1}, from);
  };
  ASSERT_TRUE(spill_one(1).is_ok());
  ASSERT_TRUE(spill_one(2).is_ok());
  const std::vector<std::string> kept = two.spill_paths(0);
  fs::remove_all(two.folder(1));
  ASSERT_TRUE(spill_one(3).is_ok());
  ASSERT_TRUE(spill_one(4).is_ok());
  EXPECT_EQ(two.spill_paths(0), kept);
  EXPECT_EQ(two.spill_paths(1).size(), 1U);
}

}  // namespace
}  // namespace entrepot::testing
