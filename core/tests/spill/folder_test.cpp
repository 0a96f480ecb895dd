// Unusable spill directories are rejected at startup, with their path and a remedy.
#include "spill/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "os/clock.h"
#include "os/files.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

namespace fs = std::filesystem;

Status try_folder(os::FileIo& io, const std::string& folder, std::uint64_t reserve = 0) {
  const auto opened = open_spill_folder(io, folder, "/run/s.sock", reserve, 0);
  return opened.is_ok() ? Status::ok() : opened.status();
}

bool says(const Status& status, const std::string& words) { return status.message().find(words) != std::string::npos; }

TEST(SpillFolder, IsMadeForUsAloneIfItsParentIsThere) {
  const Scratch scratch;
  FaultyIo io;
  ASSERT_TRUE(try_folder(io, scratch.path("new")).is_ok());
  EXPECT_EQ(fs::status(scratch.path("new")).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(store_subfolder(scratch.path("new"), "/run/s.sock")).permissions(), fs::perms::owner_all);
  const Status deep = try_folder(io, scratch.path("missing/new"));
  EXPECT_EQ(deep.code(), Code::kInvalidArgument);
  EXPECT_TRUE(says(deep, scratch.path("missing"))) << deep.message();
  EXPECT_FALSE(fs::exists(scratch.path("missing")));
}

TEST(SpillFolder, MayNotBeOpenToOthersNorALinkNorAFile) {
  const Scratch scratch;
  FaultyIo io;
  fs::create_directory(scratch.path("open"));
  fs::permissions(scratch.path("open"), fs::perms::all);
  const Status open = try_folder(io, scratch.path("open"));
  EXPECT_EQ(open.code(), Code::kAccessDenied);
  EXPECT_TRUE(says(open, "chmod 700 " + scratch.path("open"))) << open.message();
  fs::create_directory_symlink(scratch.path(), scratch.path("link"));
  const Status link = try_folder(io, scratch.path("link"));
  EXPECT_EQ(link.code(), Code::kAccessDenied);
  EXPECT_TRUE(says(link, scratch.path("link"))) << link.message();
  scratch.write("file", "text");
  EXPECT_EQ(try_folder(io, scratch.path("file")).code(), Code::kAccessDenied);
  if (::geteuid() == 0) {
    fs::create_directory(scratch.path("theirs"));
    ASSERT_EQ(::chown(scratch.path("theirs").c_str(), 12345, 12345), 0);
    const Status theirs = try_folder(io, scratch.path("theirs"));
    EXPECT_EQ(theirs.code(), Code::kAccessDenied);
    EXPECT_TRUE(says(theirs, "12345")) << theirs.message();
  }
}

TEST(SpillFolder, ReadOnlyIsRefused) {
  FaultyIo io;
  const Scratch scratch;
  if (::geteuid() == 0) GTEST_SKIP() << "permissions do not bind root";
  fs::create_directory(scratch.path("fixed"));
  fs::permissions(scratch.path("fixed"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(try_folder(io, scratch.path("fixed")).code(), Code::kAccessDenied);
}

TEST(SpillFolder, OnADiskWithoutRoomIsRefused) {
  const Scratch scratch;
  FaultyIo io;
  io.free_bytes = 5 * kMiB;
  const Status full = try_folder(io, scratch.path("full"), 100 * kMiB);
  EXPECT_EQ(full.code(), Code::kStoreFull);
  EXPECT_TRUE(says(full, "5 MiB") && says(full, "100 MiB")) << full.message();
  io.free_bytes = UINT64_MAX;
  io.fail_writes(FaultyIo::Fault::kNoSpace, 0, 10);  // detected by the probe
  const Status no_page = try_folder(io, scratch.path("full"));
  EXPECT_EQ(no_page.code(), Code::kStoreFull);
  EXPECT_TRUE(says(no_page, scratch.path("full"))) << no_page.message();
}

TEST(SpillFolder, OnAFullDiskIsOpenedForWhatIsThere) {
  const Scratch scratch;
  FaultyIo io;
  const std::string folder = scratch.path("used");
  {
    const auto before = open_spill_folder(io, folder, "/run/s.sock", 0, 0);
    ASSERT_TRUE(before.is_ok());
    scratch.write(fs::relative(before->path, scratch.path()).string() + "/spill-00001", "payload");
  }
  io.free_bytes = 0;
  io.fail_writes(FaultyIo::Fault::kNoSpace, 0, 1'000);
  const auto after = open_spill_folder(io, folder, "/run/s.sock", 100 * kMiB, 0);
  ASSERT_TRUE(after.is_ok()) << after.status().to_string();
  EXPECT_FALSE(after->direct) << "could not be tried";
  EXPECT_EQ(os::list_folder(after->path)->size(), 2U) << "lock and payload, and no probe file";
  const auto without_files = open_spill_folder(io, folder, "/run/t.sock", 100 * kMiB, 0);
  EXPECT_EQ(without_files.code(), Code::kStoreFull);
  EXPECT_TRUE(open_spill_folder(io, folder, "/run/t.sock", std::nullopt, 0).is_ok()) << "no room is needed";
}

TEST(SpillFolder, ServesOneDaemonOfAnAddressAndManyAddresses) {
  const Scratch scratch;
  FaultyIo io;
  const std::string folder = scratch.path("shared");
  auto first = open_spill_folder(io, folder, "/run/a.sock", 0, 0);
  ASSERT_TRUE(first.is_ok());
  const auto second = open_spill_folder(io, folder, "/run/a.sock", 0, 0);
  EXPECT_EQ(second.code(), Code::kStoreUnavailable);
  EXPECT_TRUE(says(second.status(), folder) && says(second.status(), "/run/a.sock")) << second.status().message();
  EXPECT_TRUE(open_spill_folder(io, folder, "/run/b.sock", 0, 0).is_ok());
  first->lock.reset();
  EXPECT_TRUE(open_spill_folder(io, folder, "/run/a.sock", 0, 0).is_ok());
}

TEST(SpillFolder, FallsBackToTheCacheWhereDirectIoIsRefused) {
  const Scratch scratch;
  FaultyIo io;
  io.refuses_direct = true;
  const auto opened = open_spill_folder(io, scratch.path("cached"), "/run/a.sock", 0, 0);
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  EXPECT_FALSE(opened->direct);
  EXPECT_EQ(os::list_folder(opened->path)->size(), 1U);  // only the lock: the probe file is gone
}

TEST(SpillFolder, WhatDeadStoresLeftGoesAfterADay) {
  const Scratch scratch;
  FaultyIo io;
  const std::string folder = scratch.path("all");
  std::string left;
  {
    const auto dead = open_spill_folder(io, folder, "/run/dead.sock", 0, 0);
    ASSERT_TRUE(dead.is_ok());
    left = dead->path;
    scratch.write(fs::relative(left, scratch.path()).string() + "/spill-00001", "payload");
  }
  const auto alive = open_spill_folder(io, folder, "/run/alive.sock", 0, 0);
  ASSERT_TRUE(alive.is_ok());
  scratch.write("all/keep/file", "not ours");
  constexpr std::uint64_t kDayNs = 86'400'000'000'000ULL;
  EXPECT_EQ(remove_stale_subfolders(io, folder, os::unix_ns()), 0U);
  EXPECT_TRUE(fs::exists(left));
  EXPECT_EQ(remove_stale_subfolders(io, folder, os::unix_ns() + kDayNs + 1'000'000'000), 1U);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(alive->path + "/lock"));
  EXPECT_TRUE(fs::exists(scratch.path("all/keep/file")));
}

TEST(SpillFolder, AFileThatIsNotOursKeepsItsFolder) {
  const Scratch scratch;
  FaultyIo io;
  const auto opened = open_spill_folder(io, scratch.path("a"), "/run/a.sock", 0, 0);
  ASSERT_TRUE(opened.is_ok());
  const std::string stranger = opened->path + "/notes.txt";
  scratch.write(fs::relative(stranger, scratch.path()).string(), "mine");
  EXPECT_FALSE(remove_store_subfolder(io, opened->path).is_ok());
  EXPECT_TRUE(fs::exists(stranger));
}

}  // namespace
}  // namespace entrepot::testing
