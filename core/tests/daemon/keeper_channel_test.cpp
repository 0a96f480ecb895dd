#include "daemon/keeper_channel.h"

#include <gtest/gtest.h>

#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

struct Channel : ::testing::Test {
  Channel() {
    auto pair = os::socket_pair(os::SocketKind::kSeqPacket);
    EXPECT_TRUE(pair.is_ok());
    one = std::move(pair->first);
    other = std::move(pair->second);
  }
  UniqueFd one;
  UniqueFd other;
};

TEST_F(Channel, CarriesMessagesWithTheirDescriptor) {
  auto fd = os::create_memfd("test", 8192);
  ASSERT_TRUE(fd.is_ok());
  const HeldTag tag = segment_tag(7, 9);
  ASSERT_TRUE(
      send_keeper_message(one.get(), keeper_message(KeeperVerb::kHold, tag), fd->get(), os::Deadline::after_ms(1000))
          .is_ok());
  ASSERT_TRUE(
      send_keeper_message(one.get(), keeper_message(KeeperVerb::kGoodbye), -1, os::Deadline::after_ms(1000)).is_ok());
  const auto first = receive_keeper_message(other.get(), os::Deadline::after_ms(1000));
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(first->message.verb, KeeperVerb::kHold);
  EXPECT_EQ(first->message.tag(), tag);
  ASSERT_TRUE(first->fd.valid());
  EXPECT_TRUE(*os::same_file(first->fd.get(), fd->get()));
  const auto second = receive_keeper_message(other.get(), os::Deadline::after_ms(1000));
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(second->message.verb, KeeperVerb::kGoodbye);
  EXPECT_FALSE(second->fd.valid());
}

TEST_F(Channel, TellsSilenceFromDeathFromAnotherVersion) {
  EXPECT_EQ(receive_keeper_message(other.get(), os::Deadline::after_ms(10)).code(), Code::kTimeout);
  KeeperMessage alien;
  alien.magic ^= 1;
  ASSERT_TRUE(send_keeper_message(one.get(), alien, -1, os::Deadline::after_ms(1000)).is_ok());
  EXPECT_EQ(receive_keeper_message(other.get(), os::Deadline::after_ms(1000)).code(), Code::kVersionMismatch);
  one.reset();
  EXPECT_EQ(receive_keeper_message(other.get(), os::Deadline::after_ms(1000)).code(), Code::kStoreUnavailable);
}

}  // namespace
}  // namespace entrepot
