// Upgrade in place: nothing is lost, pins included, and a failed upgrade is rolled back.
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/store_process.h"
#include "os/files.h"
#include "os/memfd.h"

namespace entrepot::testing {
namespace {

namespace fs = std::filesystem;

std::string copy_of(const char* program, const Scratch& folder, const std::string& name) {
  const std::string path = folder.path(name);
  fs::copy_file(program, path);
  return path;
}

std::string program_of(std::uint32_t pid) { return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe"); }

Result<std::string> upgrade(RawClient& client, const std::string& program) {
  const auto reply = client.call<UpgradeReply>(MessageType::kUpgrade, UpgradeRequest{program});
  if (!reply.is_ok()) return reply.status();
  return reply->version;
}

TEST(Upgrade, ObjectsPinsAndTheKeepersProcessStay) {
  StoreProcess store;
  const std::string next = copy_of(ENTREPOTD_PATH, store.folder(), "next");
  RawClient client = store.client();
  const auto sealed = client.put(kA, std::string(200'000, 'a'));
  ASSERT_TRUE(sealed.is_ok() && client.seal_inline(kB, "b").is_ok());
  Result<UniqueFd> table = os::duplicate(client.pin_table.get());
  ASSERT_TRUE(table.is_ok());
  Result<PinTable> pins = PinTable::attach(table.take());
  ASSERT_TRUE(pins.is_ok());
  const std::uint32_t position = pins->pin(sealed->slot, sealed->generation);
  const std::uint32_t keeper = store.keeper_pid();

  const auto version = upgrade(client, next);
  ASSERT_TRUE(version.is_ok()) << version.status().to_string();
  EXPECT_FALSE(version->empty());
  RawClient after(store.path());
  ASSERT_TRUE(after.come_back(client).is_ok()) << store.log();
  EXPECT_EQ(after.identity.instance, client.identity.instance);
  EXPECT_EQ(store.keeper_pid(), keeper);
  EXPECT_EQ(keeper, static_cast<std::uint32_t>(store.first_pid()));
  EXPECT_EQ(program_of(keeper), next);
  EXPECT_EQ(program_of(store.daemon_pid()), next);
  EXPECT_EQ(after.lookup(kA).generation, sealed->generation);
  EXPECT_EQ(after.lookup(kB).code, Code::kOk);
  EXPECT_TRUE(after.remove(kA));
  EXPECT_EQ(json_number(after.status(), "deferred_frees"), 1U);
  pins->unpin(position);
  EXPECT_TRUE(eventually([&] { return json_number(after.status(), "deferred_frees") == 0; }));
}

TEST(Upgrade, AgainAndAgainWithDeathsBetween) {
  StoreProcess store;
  for (int round = 0; round < 4; ++round) {
    const std::string next = copy_of(ENTREPOTD_PATH, store.folder(), "next" + std::to_string(round));
    RawClient client = store.client();
    IdBytes id{};
    id[0] = static_cast<std::uint8_t>(10 + round);
    ASSERT_TRUE(client.put(id, std::string(100'000, 'x')).is_ok());
    ASSERT_TRUE(upgrade(client, next).is_ok());
    const std::uint32_t daemon = store.daemon_pid();
    EXPECT_EQ(program_of(daemon), next);
    // A new keeper does not know the previous program, so it does not go back to it if the daemon dies young too.
    const std::uint32_t keeper = store.keeper_pid();
    store.kill(keeper);
    ASSERT_TRUE(eventually([&] {
      const std::uint64_t now = json_number(store.client().status(), "keeper_pid");
      return now != keeper && now != 0;
    }));
    if (round % 2 == 0) store.kill(daemon);
    RawClient after = store.client();
    for (int i = 0; i <= round; ++i) {
      id[0] = static_cast<std::uint8_t>(10 + i);
      EXPECT_EQ(after.lookup(id).code, Code::kOk) << i << " in round " << round;
    }
    EXPECT_EQ(program_of(store.keeper_pid()), next);
    EXPECT_EQ(program_of(store.daemon_pid()), next);
  }
}

TEST(Upgrade, ASignalTakesWhatWasInstalledInPlace) {
  StoreProcess store;
  const std::string place = copy_of(ENTREPOTD_PATH, store.folder(), "entrepotd");
  RawClient client = store.client();
  ASSERT_TRUE(client.seal_inline(kA, "a").is_ok());
  ASSERT_TRUE(upgrade(client, place).is_ok());
  const std::uint32_t former = store.daemon_pid();
  fs::copy_file(ENTREPOTD_PATH, place + ".new");
  fs::rename(place + ".new", place);
  EXPECT_EQ(program_of(former), place + " (deleted)");
  ASSERT_TRUE(os::send_signal(store.first_pid(), SIGUSR2).is_ok());
  ASSERT_TRUE(eventually([&] { return !process_exists(former); })) << store.log();
  EXPECT_EQ(program_of(store.daemon_pid()), place) << store.log();
  EXPECT_EQ(store.client().lookup(kA).code, Code::kOk);
}

TEST(Upgrade, AProgramThatSaysNothingKeepsNobodyWaiting) {
  StoreProcess store;
  RawClient patient = store.client();
  RawClient other = store.client();
  const std::string silent = copy_of(SILENT_PATH, store.folder(), "silent");
  std::atomic<bool> answered{false};
  std::thread asking([&] {
    const auto version = upgrade(patient, silent);
    answered = true;
    EXPECT_FALSE(version.is_ok());
  });
  ASSERT_TRUE(eventually([&] { return fs::exists(silent + ".begun"); })) << store.log();
  EXPECT_TRUE(other.seal_inline(kA, "a").is_ok());
  EXPECT_EQ(other.lookup(kA).code, Code::kOk);
  EXPECT_FALSE(upgrade(other, silent).is_ok()) << "one at a time";
  EXPECT_FALSE(answered) << "the others waited for the program, which has five seconds";
  pid_t begun = 0;
  std::ifstream(silent + ".begun") >> begun;
  EXPECT_TRUE(os::send_signal(begun, SIGKILL).is_ok());
  asking.join();
  EXPECT_EQ(other.lookup(kA).code, Code::kOk);
}

TEST(Upgrade, WhatCannotTakeOverIsRefusedAndNothingChanges) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(client.seal_inline(kA, "a").is_ok());
  const std::uint32_t daemon = store.daemon_pid();
  const std::string text = store.folder().path("text");
  std::ofstream(text) << "no program\n";
  const std::string script = store.folder().path("script");
  std::ofstream(script) << "#!/bin/sh\necho entrepotd 1 takes over\n";
  fs::permissions(script, fs::perms::owner_all);
  const std::string open = copy_of(ENTREPOTD_PATH, store.folder(), "open");
  fs::permissions(open, fs::perms::all);
  const auto refusal = [&](const std::string& program) {
    const auto version = upgrade(client, program);
    EXPECT_FALSE(version.is_ok()) << program;
    return version.status();
  };
  EXPECT_NE(refusal("entrepotd").message().find("absolute"), std::string::npos);
  EXPECT_NE(refusal("/nowhere/entrepotd").message().find("/nowhere/entrepotd"), std::string::npos);
  EXPECT_EQ(refusal("/proc").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(text).code(), Code::kInvalidArgument);
  const Status scripted = refusal(script);
  EXPECT_EQ(scripted.code(), Code::kInvalidArgument);
  EXPECT_NE(scripted.message().find(script + " is a script (#!/bin/sh); expected the entrepotd binary"),
            std::string::npos)
      << scripted.message();
  fs::permissions(text, fs::perms::owner_all);
  EXPECT_NE(refusal(text).message().find("not an ELF executable"), std::string::npos);
  EXPECT_EQ(refusal("/bin/true").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(open).code(), Code::kAccessDenied);
  const Status other = refusal(OTHER_FORMATS_PATH);
  EXPECT_EQ(other.code(), Code::kVersionMismatch) << other.to_string();
  EXPECT_NE(other.message().find("layout 99"), std::string::npos) << other.message();
  EXPECT_EQ(store.daemon_pid(), daemon);
  EXPECT_EQ(client.lookup(kA).code, Code::kOk);
}

TEST(Upgrade, AProgramWhoseDaemonEndsAtOnceIsGivenUp) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(client.put(kA, std::string(200'000, 'a')).is_ok());
  const std::uint32_t former = store.daemon_pid();
  const auto version = upgrade(client, DYING_DAEMON_PATH);
  ASSERT_TRUE(version.is_ok()) << version.status().to_string();
  RawClient after = store.client();
  EXPECT_NE(store.daemon_pid(), former);
  EXPECT_EQ(program_of(store.daemon_pid()), ENTREPOTD_PATH);
  EXPECT_EQ(program_of(store.keeper_pid()), ENTREPOTD_PATH);
  EXPECT_EQ(after.lookup(kA).code, Code::kOk);
  EXPECT_NE(store.log().find("reverting to the previous program"), std::string::npos);
}

}  // namespace
}  // namespace entrepot::testing
