#include "daemon/keeper_channel.h"

#include <gtest/gtest.h>

#include <array>
#include <span>

#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

os::Deadline soon() { return os::Deadline::after_ms(20'000); }
KeeperMessage hold(std::uint64_t client) {
  return keeper_message(KeeperMessageType::kHold, {DescriptorKind::kPinTable, client});
}

struct Channel : ::testing::Test {
  Channel() {
    auto pair = os::socket_pair(os::SocketKind::kSeqPacket);
    EXPECT_TRUE(pair.is_ok());
    first = KeeperChannel(std::move(pair->first));
    other = KeeperChannel(std::move(pair->second));
    memory = os::create_memfd("test", 8192).take();
  }
  // Posts Holds that nobody receives until the socket is full. Returns how many were posted.
  std::uint64_t fill() {
    std::uint64_t posted = 0;
    while (first.all_sent() && posted < 1'000'000) {
      first.post(hold(posted++), memory.get());
      EXPECT_TRUE(first.flush().is_ok());
    }
    EXPECT_FALSE(first.all_sent());
    return posted;
  }
  KeeperChannel first;
  KeeperChannel other;
  UniqueFd memory;
};

TEST_F(Channel, CarriesMessagesWithTheirDescriptor) {
  const DescriptorTag tag = segment_tag(7, 9);
  first.post(keeper_message(KeeperMessageType::kHold, tag), memory.get());
  first.post(keeper_message(KeeperMessageType::kShutdown));
  EXPECT_TRUE(first.is_unsent(tag));
  EXPECT_EQ(other.receive().code(), Code::kTimeout);
  ASSERT_TRUE(first.flush().is_ok());
  EXPECT_TRUE(first.all_sent());
  EXPECT_FALSE(first.is_unsent(tag));
  const auto first = other.receive(soon());
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(first->message.type, KeeperMessageType::kHold);
  EXPECT_EQ(first->message.tag(), tag);
  ASSERT_TRUE(first->fd.valid());
  EXPECT_TRUE(*os::same_file(first->fd.get(), memory.get()));
  const auto second = other.receive(soon());
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(second->message.type, KeeperMessageType::kShutdown);
  EXPECT_FALSE(second->fd.valid());
}

TEST_F(Channel, TellsSilenceFromDeathFromAnotherVersion) {
  EXPECT_EQ(other.receive(os::Deadline::after_ms(10)).code(), Code::kTimeout);
  KeeperMessage alien;
  alien.magic ^= 1;
  first.post(alien);
  ASSERT_TRUE(first.flush().is_ok());
  EXPECT_EQ(other.receive(soon()).code(), Code::kVersionMismatch);
  first.close();
  EXPECT_FALSE(first.is_open());
  EXPECT_EQ(other.receive(soon()).code(), Code::kStoreUnavailable);
}

TEST_F(Channel, NeverWaitsForAPeerThatReceivesNothing) {
  const std::uint64_t posted = fill();
  EXPECT_GT(posted, 100U) << "a stopped keeper is met with the first clients";
  const DescriptorTag last{DescriptorKind::kPinTable, posted - 1};
  EXPECT_TRUE(first.is_unsent(last));
  EXPECT_TRUE(first.wants_write());
  // They are sent once there is space, in order and without loss.
  for (std::uint64_t expected = 0; expected < posted; ++expected) {
    const auto received = other.receive(soon());
    ASSERT_TRUE(received.is_ok()) << expected << ": " << received.status().to_string();
    EXPECT_EQ(received->message.number, expected);
    EXPECT_TRUE(received->fd.valid());
    ASSERT_TRUE(first.flush().is_ok());
  }
  EXPECT_TRUE(first.all_sent());
  EXPECT_FALSE(first.wants_write());
}

TEST_F(Channel, WhatIsNotSentCanBeTakenBack) {
  const std::uint64_t posted = fill();
  EXPECT_TRUE(first.cancel_hold({DescriptorKind::kPinTable, posted - 1}));
  EXPECT_TRUE(first.all_sent());
  EXPECT_FALSE(first.cancel_hold({DescriptorKind::kPinTable, posted - 1}));
  EXPECT_FALSE(first.cancel_hold({DescriptorKind::kPinTable, 0})) << "it was sent";
}

TEST_F(Channel, WhatWasSentIsReceivedAfterTheSendersDeathThoughItHadNotReadAll) {
  // The receiver's end then reports ECONNRESET before the messages that are queued in it.
  other.post(keeper_message(KeeperMessageType::kAck));
  ASSERT_TRUE(other.flush().is_ok());
  for (std::uint64_t number = 0; number < 3; ++number)
    first.post(hold(number), memory.get());
  ASSERT_TRUE(first.flush().is_ok());
  first.close();
  for (std::uint64_t number = 0; number < 3; ++number) {
    const auto received = other.receive(soon());
    ASSERT_TRUE(received.is_ok()) << received.status().to_string();
    EXPECT_EQ(received->message.number, number);
    EXPECT_TRUE(received->fd.valid());
  }
  EXPECT_EQ(other.receive(soon()).code(), Code::kStoreUnavailable);
}

TEST_F(Channel, ADescriptorThatIsGivenAwayIsClosedWhenItWasSent) {
  auto pair = os::socket_pair(os::SocketKind::kStream).take();
  first.post(keeper_message(KeeperMessageType::kUpgrade), std::move(pair.first));
  ASSERT_TRUE(first.flush().is_ok());
  ASSERT_TRUE(other.receive(soon()).is_ok());  // and dropped: no copy is left
  std::array<std::uint8_t, 1> byte{};
  std::vector<UniqueFd> fds;
  const auto end = os::receive_some(pair.second.get(), byte, fds);
  ASSERT_TRUE(end.is_ok());
  EXPECT_TRUE(end->closed);
}

}  // namespace
}  // namespace entrepot
