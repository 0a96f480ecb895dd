#include "daemon/keeper_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "os/clock.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kUpgradeNs = 20'000'000;
constexpr int kMaxTurns = 10'000;

// An upgrade is requested while the keeper takes nothing. Its process is this test's parent, which lives, and stays
// untouched because its channel stays open.
struct KeeperLinkTest : ::testing::Test {
  KeeperLinkTest() {
    auto pair = os::socket_pair(os::SocketKind::kSeqPacket);
    EXPECT_TRUE(pair.is_ok());
    keeper = KeeperChannel(std::move(pair->first));
    link.emplace(loop, std::move(pair->second), std::vector<std::string>{}, kUpgradeNs);
    keeper.post(keeper_message(KeeperMessageType::kRestored,
                               {DescriptorKind::kListenSocket, static_cast<std::uint64_t>(::getppid())}));
    EXPECT_TRUE(keeper.flush().is_ok());
    EXPECT_TRUE(link->take_over().is_ok());
  }
  void fill_channel() {
    const DescriptorTag tag{DescriptorKind::kPinTable, 1};
    for (int i = 0; i < 1'000'000; ++i) {
      link->hold(tag, os::create_memfd("test", 4096).take());
      if (!link->is_held_by_keeper(tag)) return;
      link->drop(tag);
    }
    FAIL() << "the channel is never full";
  }
  void upgrade() {
    link->upgrade(os::create_memfd("program", 4096).take(), [this](const Status& status) { answer = status; });
  }
  void turn() {
    ASSERT_TRUE(loop.dispatch().is_ok());
    loop.run_due();
  }
  void turn_until_timeout() {
    const std::uint64_t end = os::monotonic_ns() + 2 * kUpgradeNs;
    auto wake = loop.timer([](std::uint64_t) {});
    wake.arm(end);
    while (os::monotonic_ns() < end)
      turn();
    for (int i = 0; i < 3; ++i) {  // of what was due, if this process got no CPU time until the end
      wake.arm(os::monotonic_ns());
      turn();
    }
  }
  // Receives what was sent; notes the Upgrades: whether each has a program.
  void receive() {
    while (true) {
      const auto received = keeper.receive();
      if (!received.is_ok()) return;
      if (received->message.type == KeeperMessageType::kUpgrade) upgrades.push_back(received->fd.valid());
    }
  }
  void turn_until_answered() {
    for (int i = 0; i < kMaxTurns && !answer; ++i) {
      receive();
      turn();
    }
    receive();
  }

  EventLoop loop{os::Poller::create().take()};
  KeeperChannel keeper;
  std::optional<KeeperLink> link;
  std::optional<Status> answer;
  std::vector<bool> upgrades;
};

TEST_F(KeeperLinkTest, AnUpgradeThatWasSentIsGivenUpOnlyWithItsCancellation) {
  upgrade();
  fill_channel();
  turn_until_timeout();
  EXPECT_FALSE(answer) << "if this daemon died now, the program would run after all";
  turn_until_answered();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), Code::kTimeout);
  EXPECT_EQ(upgrades, (std::vector<bool>{true, false}));
}

TEST_F(KeeperLinkTest, AnUpgradeThatWasNeverSentIsGivenUpAtOnce) {
  fill_channel();
  upgrade();
  turn_until_timeout();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), Code::kTimeout);
  receive();
  EXPECT_TRUE(upgrades.empty());
}

TEST_F(KeeperLinkTest, AnAnswerIsTakenWhileTheCancellationIsUnsent) {
  upgrade();
  fill_channel();
  turn_until_timeout();
  keeper.post(keeper_message(KeeperMessageType::kAck, {DescriptorKind::kListenSocket, 1}));
  ASSERT_TRUE(keeper.flush().is_ok());
  turn();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->is_ok()) << answer->to_string();
  receive();
  EXPECT_EQ(upgrades, std::vector<bool>{true});
}

TEST_F(KeeperLinkTest, AnAnswerAfterTheCancellationIsIgnored) {
  upgrade();
  turn_until_timeout();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), Code::kTimeout);
  keeper.post(keeper_message(KeeperMessageType::kAck, {DescriptorKind::kListenSocket, 1}));
  ASSERT_TRUE(keeper.flush().is_ok());
  answer.reset();
  upgrade();
  turn();
  EXPECT_FALSE(answer) << "it belongs to the first upgrade";
  receive();
  EXPECT_EQ(upgrades, (std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace entrepot
