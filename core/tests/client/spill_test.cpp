// More data than memory, in a real daemon with real files: every value can be read back, whoever dies meanwhile.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "client/support.h"

namespace entrepot::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kValueBytes = 4U << 20;

struct Kept {
  IdBytes id{};
  std::uint32_t seed = 0;
};

std::vector<std::string> arguments(const Scratch& disk) {
  return {"--size=64MiB", "--warm-bytes=8MiB", "--spill-path=" + disk.path("a") + "," + disk.path("b")};
}

std::vector<Kept> put_many(Client& client, std::uint32_t count) {
  const auto session = client.open_session("scope", "run", std::nullopt, {}).take();
  std::vector<Kept> kept;
  for (std::uint32_t i = 0; i < count; ++i) {
    const PutItem item = item_of(session, {pattern(kValueBytes + i, i), pattern(100, i)});
    const PutResult put = put_one(client, item);
    EXPECT_TRUE(put.status.is_ok()) << i << ": " << put.status.to_string();
    if (!put.status.is_ok()) break;
    kept.push_back({item.id, i});
  }
  return kept;
}

bool is_right(Client& client, const Kept& kept) {
  const auto object = get_one(client, kept.id, 0);
  EXPECT_TRUE(object.is_ok()) << kept.seed << ": " << object.status().to_string();
  if (!object.is_ok()) return false;
  const auto expected = pattern(kValueBytes + kept.seed, kept.seed);
  const BufferView& buffer = (*object)->buffers()[0];
  return buffer.length == expected.size() && std::memcmp(buffer.data, expected.data(), expected.size()) == 0;
}

std::uint64_t bytes_below(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

TEST(Spill, FourTimesTheMemoryIsPutAndGot) {
  const Scratch disk;
  StoreProcess store(arguments(disk));
  const auto client = connect(store);
  const auto kept = put_many(*client, 64);
  ASSERT_EQ(kept.size(), 64U);
  for (const Kept& object : kept)
    EXPECT_TRUE(is_right(*client, object)) << object.seed;
  for (auto object = kept.rbegin(); object != kept.rend(); ++object)
    EXPECT_TRUE(is_right(*client, *object)) << object->seed;
  EXPECT_GT(bytes_below(disk.path("a")), 0U);
  EXPECT_GT(bytes_below(disk.path("b")), 0U);
  EXPECT_GT(number(*client, "loads"), 0U);
  std::vector<IdBytes> ids;
  for (const Kept& object : kept)
    ids.push_back(object.id);
  ASSERT_TRUE(client->remove(ids, {}).is_ok());
  EXPECT_TRUE(eventually([&] { return number(*client, "disk_bytes") == 0; })) << *client->status({});
}

TEST(Spill, AKilledDaemonLosesNothingThatWasSpilled) {
  const Scratch disk;
  StoreProcess store(arguments(disk));
  const auto client = connect(store);
  const auto kept = put_many(*client, 40);
  for (int round = 0; round < 3; ++round) {
    store.kill(store.daemon_pid());
    const auto after = connect(store);
    for (const Kept& object : kept)
      EXPECT_TRUE(is_right(*after, object)) << object.seed << " in round " << round;
  }
}

TEST(Spill, WhatIsOnDiskOutlivesKeeperAndDaemon) {
  const Scratch disk;
  StoreProcess store(arguments(disk));
  std::vector<Kept> kept;
  {
    const auto client = connect(store);
    kept = put_many(*client, 40);
    std::vector<IdBytes> ids;
    for (const Kept& object : kept)
      ids.push_back(object.id);
    // Every object needs a copy, since memory is lost with both processes.
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(client->evict(ids, {}).is_ok());
      return number(*client, "disk_bytes") >= 40 * kValueBytes && number(*client, "pending_writes") == 0 &&
             number(*client, "unrecorded") == 0;
    })) << *client->status({});
  }
  for (int life = 0; life < 2; ++life) {
    const std::uint32_t keeper = store.keeper_pid();
    const std::uint32_t daemon = store.daemon_pid();
    ASSERT_TRUE(os::send_signal(static_cast<pid_t>(keeper), SIGSTOP).is_ok());  // restarts no daemon
    store.kill(daemon);
    store.kill(keeper);
    store.start_again();
    const auto client = connect(store);
    for (const Kept& object : kept)
      EXPECT_TRUE(is_right(*client, object)) << object.seed << " in life " << life;
    // All objects have copies again: clean or rewritten.
    EXPECT_GE(number(*client, "disk_bytes"), 40 * kValueBytes);
  }
}

TEST(Spill, ACleanEndLeavesNoFile) {
  const Scratch disk;
  {
    StoreProcess store(arguments(disk));
    const auto client = connect(store);
    ASSERT_EQ(put_many(*client, 30).size(), 30U);
    EXPECT_GT(bytes_below(disk.path("a")), 0U);
  }
  EXPECT_TRUE(fs::is_empty(disk.path("a")));
  EXPECT_TRUE(fs::is_empty(disk.path("b")));
}

TEST(Spill, AFullDiskIsStoreFullWithTheReasonAndNothingIsLost) {
  const Scratch disk;
  StoreProcess store({"--size=64MiB", "--warm-bytes=8MiB", "--spill-path=" + disk.path("a"), "--spill-quota=64MiB"});
  const auto client = connect(store);
  const auto session = client->open_session("scope", "run", std::nullopt, {}).take();
  std::vector<Kept> kept;
  Status refused;
  for (std::uint32_t i = 0; i < 64 && refused.is_ok(); ++i) {
    const PutItem item = item_of(session, {pattern(kValueBytes + i, i)});
    refused = client->put(std::span(&item, 1), 3000, {}).front().status;
    if (refused.is_ok()) kept.push_back({item.id, i});
  }
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_NE(refused.message().find("of 64 MiB"), std::string::npos) << refused.message();
  ASSERT_GT(kept.size(), 16U);
  // Recovery: deleting objects frees space, and all others are intact.
  std::vector<IdBytes> gone;
  for (int i = 0; i < 6; ++i) {
    gone.push_back(kept.back().id);
    kept.pop_back();
  }
  ASSERT_TRUE(client->remove(gone, {}).is_ok());
  for (const Kept& object : kept)
    EXPECT_TRUE(is_right(*client, object)) << object.seed;
}

int start_with(const Scratch& folder, const std::string& spill, std::string& output) {
  return run_until_exit({"--address=unix://" + folder.path("s.sock"), "--size=64MiB", "--spill-path=" + spill}, folder,
                        output);
}

TEST(SpillConfigValidation, AFolderThatWasNamedAndCannotBeUsedIsRefused) {
  const Scratch folder;
  std::string output;
  EXPECT_EQ(start_with(folder, folder.path("none/there"), output), 1);
  EXPECT_NE(output.find(folder.path("none") + " does not exist"), std::string::npos) << output;
  EXPECT_FALSE(fs::exists(folder.path("s.sock")));
  fs::create_directory(folder.path("open"));
  fs::permissions(folder.path("open"), fs::perms::all);
  EXPECT_EQ(start_with(folder, folder.path("open"), output), 1);
  EXPECT_NE(output.find("chmod 700 " + folder.path("open")), std::string::npos) << output;
  fs::create_directory_symlink(folder.path(), folder.path("link"));
  EXPECT_EQ(start_with(folder, folder.path("link"), output), 1);
  EXPECT_NE(output.find(folder.path("link")), std::string::npos) << output;
  if (fs::exists("/proc/version")) {
    EXPECT_EQ(start_with(folder, "/proc/spill", output), 1);  // not writable by anyone
    EXPECT_NE(output.find("/proc/spill"), std::string::npos) << output;
  }
  EXPECT_EQ(start_with(folder, "relative", output), 2);
  EXPECT_NE(output.find("absolute"), std::string::npos) << output;
}

TEST(SpillConfigValidation, TooLittleRoomIsSaidWithTheFigures) {
  const Scratch folder;
  std::string output;
  EXPECT_EQ(run_until_exit({"--address=unix://" + folder.path("s.sock"), "--size=64MiB",
                            "--spill-path=" + folder.path("a"), "--spill-reserve=1000TiB"},
                           folder, output),
            1);
  EXPECT_NE(output.find("--spill-reserve"), std::string::npos) << output;
}

TEST(SpillConfigValidation, AManifestOfANewerFormatIsRefusedWithBothVersions) {
  const Scratch disk;
  StoreProcess store({"--size=64MiB", "--warm-bytes=8MiB", "--spill-path=" + disk.path("a")});
  {
    const auto client = connect(store);
    ASSERT_EQ(put_many(*client, 30).size(), 30U);
  }
  std::string manifest;
  EXPECT_TRUE(eventually([&] {
    for (const auto& entry : fs::recursive_directory_iterator(disk.path("a"))) {
      if (entry.path().filename() == "manifest") manifest = entry.path();
    }
    return !manifest.empty();
  }));
  const std::uint32_t keeper = store.keeper_pid();
  const std::uint32_t daemon = store.daemon_pid();
  ASSERT_TRUE(os::send_signal(static_cast<pid_t>(keeper), SIGSTOP).is_ok());
  store.kill(daemon);
  store.kill(keeper);
  {
    std::fstream file(manifest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file.put(7);
  }
  std::string output;
  EXPECT_EQ(run_until_exit({"--address=unix://" + store.path(), "--size=64MiB", "--spill-path=" + disk.path("a")},
                           store.folder(), output),
            1);
  EXPECT_NE(output.find("format 7"), std::string::npos) << output;
  EXPECT_NE(output.find("format 2"), std::string::npos) << output;
}

}  // namespace
}  // namespace entrepot::testing
