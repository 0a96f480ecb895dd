// Clients, daemon and keeper are killed; sealed and pinned objects survive.
#include <unistd.h>

#include <csignal>

#include "daemon/store_process.h"
#include "os/memfd.h"

namespace entrepot::testing {
namespace {

const IdBytes kC = {3};

TEST(Death, AKilledDaemonLosesNoSealedObjectAndNoPin) {
  StoreProcess store;
  RawClient writer = store.client();
  RawClient reader = store.client();
  const auto sealed = writer.put(kA, std::string(200'000, 'a'));
  ASSERT_TRUE(sealed.is_ok()) << sealed.status().to_string();
  ASSERT_TRUE(writer.seal_inline(kB, "b").is_ok());
  Result<UniqueFd> table = os::duplicate(reader.pin_table.get());
  ASSERT_TRUE(table.is_ok());
  Result<PinTable> pins = PinTable::attach(table.take());
  ASSERT_TRUE(pins.is_ok());
  const std::uint32_t position = pins->pin(sealed->slot, sealed->generation);

  store.kill(writer.identity.daemon_pid);
  RawClient back(store.path());
  const Status returned = back.come_back(reader);
  ASSERT_TRUE(returned.is_ok()) << returned.to_string() << store.log();
  EXPECT_EQ(back.identity.instance, reader.identity.instance);
  EXPECT_EQ(back.identity.incarnation, 2U);
  EXPECT_NE(back.identity.daemon_pid, reader.identity.daemon_pid);
  EXPECT_EQ(back.lookup(kA).code, Code::kOk);
  EXPECT_EQ(back.lookup(kA).generation, sealed->generation);
  EXPECT_EQ(back.lookup(kB).code, Code::kOk);
  EXPECT_NE(back.status().find("\"lost_on_adoption\":{\"objects\":0,\"segments\":0,\"entries\":0}"), std::string::npos);
  // The pin set before the daemon's death still holds.
  EXPECT_TRUE(back.remove(kA));
  EXPECT_EQ(json_number(back.status(), "deferred_frees"), 1U);
  pins->unpin(position);
  EXPECT_TRUE(eventually([&] { return json_number(back.status(), "deferred_frees") == 0; }));
}

TEST(Death, ClientsThatDoNotComeBackAreQuarantinedUntilTheyDie) {
  StoreProcess store;
  RawClient writer = store.client();
  std::vector<UniqueFd> fds;
  ASSERT_TRUE(writer.call<LeaseReply>(MessageType::kLease, LeaseRequest{1 << 20, 1 << 20, 5000}, &fds).is_ok());
  store.kill(writer.identity.daemon_pid);
  RawClient other = store.client();
  EXPECT_NE(other.status().find("\"quarantined\":true"), std::string::npos) << other.status();
  EXPECT_GE(json_number(other.status(), "leased_bytes"), 1U << 20);
  writer.die();
  EXPECT_TRUE(eventually([&] { return json_number(other.status(), "leased_bytes") == 0; }));
  EXPECT_EQ(other.status().find("\"quarantined\":true"), std::string::npos);
}

TEST(Death, TheStoreSurvivesManyDeathsOfItsDaemon) {
  StoreProcess store;
  RawClient first = store.client();
  for (std::uint8_t round = 0; round < 5; ++round) {
    RawClient client = store.client();
    IdBytes id{};
    id[0] = static_cast<std::uint8_t>(10 + round);
    ASSERT_TRUE(client.put(id, std::string(100'000, 'x')).is_ok());
    store.kill(client.identity.daemon_pid);
    RawClient after = store.client();
    for (std::uint8_t i = 0; i <= round; ++i) {
      id[0] = static_cast<std::uint8_t>(10 + i);
      EXPECT_EQ(after.lookup(id).code, Code::kOk) << static_cast<int>(i);
    }
  }
}

TEST(Death, AKilledKeeperIsReplacedAndThenTheDaemonMayDieToo) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(client.put(kA, std::string(100'000, 'a')).is_ok());
  const std::uint32_t keeper = store.keeper_pid();
  EXPECT_EQ(static_cast<std::int32_t>(keeper), store.first_pid());
  store.kill(keeper);
  // Clients are not affected.
  ASSERT_TRUE(client.seal_inline(kB, "b").is_ok());
  EXPECT_TRUE(eventually([&] {
    const std::uint64_t now = json_number(client.status(), "keeper_pid");
    return now != keeper && now != 0 && process_exists(now);
  }));
  store.kill(client.identity.daemon_pid);
  RawClient back(store.path());
  ASSERT_TRUE(back.come_back(client).is_ok()) << store.log();
  EXPECT_EQ(back.lookup(kA).code, Code::kOk);
  EXPECT_EQ(back.lookup(kB).code, Code::kOk);
}

TEST(Death, BothDeadTheNextStoreBeginsEmptyOnTheStaleSocket) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(client.seal_inline(kA, "a").is_ok());
  const std::uint32_t keeper = store.keeper_pid();
  ASSERT_TRUE(os::send_signal(static_cast<pid_t>(keeper), SIGSTOP).is_ok());  // so that it restarts nothing
  store.kill(client.identity.daemon_pid);
  store.kill(keeper);
  store.start_again();
  RawClient anew = store.client();
  EXPECT_NE(anew.identity.instance, client.identity.instance);
  EXPECT_EQ(anew.lookup(kA).code, Code::kObjectNotFound);
  // The old client is rejected, not mistaken for another.
  RawClient back(store.path());
  EXPECT_EQ(back.come_back(client).code(), Code::kAccessDenied);
}

TEST(Death, AStoppedKeeperHoldsNobodyUpAndClientsThatItHasNoRoomForAreRefused) {
  StoreProcess store;
  RawClient first = store.client();
  const std::uint32_t keeper = store.keeper_pid();
  ASSERT_TRUE(os::send_signal(static_cast<pid_t>(keeper), SIGSTOP).is_ok());
  Status refused;
  int taken = 0;
  while (taken < 100'000) {
    RawClient client(store.path());
    refused = client.say_hello();
    if (!refused.is_ok()) break;
    taken += 1;
  }
  EXPECT_GT(taken, 30);
  EXPECT_EQ(refused.code(), Code::kStoreUnavailable) << refused.to_string();
  EXPECT_NE(refused.message().find("is stopped or being replaced"), std::string::npos) << refused.message();
  EXPECT_TRUE(first.seal_inline(kA, "a").is_ok());
  ASSERT_TRUE(os::send_signal(static_cast<pid_t>(keeper), SIGCONT).is_ok());
  EXPECT_TRUE(eventually([&] {
    RawClient client(store.path());
    return client.say_hello().is_ok();
  }));
  EXPECT_EQ(store.keeper_pid(), keeper);
  EXPECT_EQ(store.client().lookup(kA).code, Code::kOk);
}

TEST(Death, AKilledClientsLeasesPinsAndWaitsReturn) {
  StoreProcess store;
  RawClient watcher = store.client();
  const auto sealed = watcher.put(kA, std::string(100'000, 'a'));
  ASSERT_TRUE(sealed.is_ok());
  const pid_t child = ::fork();
  if (child == 0) {
    RawClient client(store.path());
    bool good = client.say_hello().is_ok();
    Result<UniqueFd> table = os::duplicate(client.pin_table.get());
    Result<PinTable> pins = PinTable::attach(table.take());
    good = good && pins.is_ok() && pins->pin(sealed->slot, sealed->generation) != PinTable::kNoPosition;
    std::vector<UniqueFd> fds;
    good = good && client.call<LeaseReply>(MessageType::kLease, LeaseRequest{1 << 20, 1 << 20, 5000}, &fds).is_ok();
    good = good && client.post(MessageType::kLookup, to_wire(LookupRequest{{kC}, 600'000})) != 0;
    if (!good) ::_exit(1);
    while (true)
      ::pause();
  }
  ASSERT_GT(child, 0);
  ASSERT_TRUE(eventually([&] {  // a lease may also wait, for memory that is being provisioned; later it is the lookup
    const std::string status = watcher.status();
    return json_number(status, "waiting") == 1 && json_number(status, "leased_bytes") >= 1U << 20;
  })) << watcher.status();
  EXPECT_TRUE(watcher.remove(kA));
  EXPECT_EQ(json_number(watcher.status(), "deferred_frees"), 1U);
  ASSERT_TRUE(os::send_signal(child, SIGKILL).is_ok());
  ASSERT_TRUE(eventually([&] { return os::reap(child).has_value(); }));
  EXPECT_TRUE(eventually([&] {
    const std::string status = watcher.status();
    return json_number(status, "waiting") == 0 && json_number(status, "deferred_frees") == 0 &&
           json_number(status, "used_bytes") == 0;
  })) << watcher.status();
  EXPECT_EQ(watcher.status().find("\"pid\":" + std::to_string(child)), std::string::npos);
}

TEST(Death, AConnectionThatEndsPolitelyKeepsItsPins) {
  StoreProcess store;
  RawClient writer = store.client();
  RawClient reader = store.client();
  const auto sealed = writer.put(kA, std::string(100'000, 'a'));
  ASSERT_TRUE(sealed.is_ok());
  Result<UniqueFd> table = os::duplicate(reader.pin_table.get());
  Result<PinTable> pins = PinTable::attach(table.take());
  ASSERT_TRUE(pins.is_ok());
  const auto position = pins->pin(sealed->slot, sealed->generation);
  reader.hang_up();  // its values stay valid
  EXPECT_TRUE(writer.remove(kA));
  EXPECT_EQ(json_number(writer.status(), "deferred_frees"), 1U);
  pins->unpin(position);
  EXPECT_TRUE(eventually([&] { return json_number(writer.status(), "deferred_frees") == 0; }));
}

TEST(Death, AKeeperEndedBySignalEndsTheStoreCleanly) {
  StoreProcess store;
  const std::uint32_t daemon = store.daemon_pid();
  ASSERT_TRUE(os::send_signal(store.first_pid(), SIGTERM).is_ok());
  const auto exit = store.wait_exit();
  ASSERT_TRUE(exit.is_ok());
  EXPECT_EQ(exit->code, 0);
  EXPECT_FALSE(exit->signalled);
  EXPECT_FALSE(process_exists(daemon));
  EXPECT_NE(::access(store.path().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace entrepot::testing
