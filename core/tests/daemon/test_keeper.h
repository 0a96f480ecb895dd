// The keeper's end of the channel, played by a test in the same process. Give its other end to a KeeperLink, without
// take_over(): a link that watches its keeper's process would start this program as another keeper. Receive now and then:
// the link must not find the channel full.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "daemon/keeper_channel.h"
#include "os/socket.h"
#include "os/unique_fd.h"

namespace entrepot::testing {

class TestKeeper {
 public:
  TestKeeper() {
    auto pair = os::socket_pair(os::SocketKind::kSeqPacket);
    EXPECT_TRUE(pair.is_ok());
    channel_ = KeeperChannel(std::move(pair->first));
    daemon_end_ = std::move(pair->second);
  }

  [[nodiscard]] UniqueFd take_daemon_end() { return std::move(daemon_end_); }

  // Receives what was sent, and holds it.
  void receive() {
    while (true) {
      auto received = channel_.receive();
      if (!received.is_ok()) return;
      const KeeperMessage& message = received->message;
      if (message.type == KeeperMessageType::kHold) held.insert_or_assign(message.tag(), std::move(received->fd));
      if (message.type == KeeperMessageType::kDrop) held.erase(message.tag());
    }
  }

  std::map<DescriptorTag, UniqueFd> held;

 private:
  KeeperChannel channel_;
  UniqueFd daemon_end_;
};

}  // namespace entrepot::testing
