#include "daemon/connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "daemon/peer.h"
#include "net/frame_socket.h"
#include "os/clock.h"

namespace entrepot {
namespace {

using testing::Peer;
using testing::status_of;

constexpr std::uint64_t kOneMiB = 1U << 20;

struct ConnectionsTest : ::testing::Test {
  ConnectionsTest() {
    connections.on_frame([this](Connection& connection, Frame& frame) {
      handled.emplace_back(connection.owner(), frame.header.request);
      if (handler) handler(connection, frame);
    });
    connections.on_closed([this](std::uint64_t owner, std::uint32_t client) { closed.emplace_back(owner, client); });
  }
  // As Server::run().
  void turn() {
    ASSERT_TRUE(loop.dispatch().is_ok());
    connections.read_rings();
    connections.read_more();
    loop.run_due();
  }
  [[nodiscard]] std::uint64_t charged() const { return budget.granted(BudgetItem::kBuffers); }

  testing::TestLoop loop;
  MemoryBudget budget{64 * kOneMiB};
  Connections connections{loop, budget, 50'000'000};
  Connections::FrameHandler handler;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> handled;  // owner, request
  std::vector<std::pair<std::uint64_t, std::uint32_t>> closed;
};

TEST_F(ConnectionsTest, AFrameInPiecesIsHandledOnceItIsComplete) {
  auto [peer, connection] = Peer::connect(connections);
  connections.identify(*connection, 7);
  const std::vector<std::uint8_t> frame = frame_bytes(MessageType::kStatus, 5, std::vector<std::uint8_t>(3000), 0);
  const std::span<const std::uint8_t> bytes(frame);
  for (const auto& [begin, end] : {std::pair{0, 10}, {10, 24}, {24, 25}, {25, 2000}}) {
    peer.send_bytes(bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    turn();
    EXPECT_TRUE(handled.empty());
  }
  EXPECT_GE(charged(), 1976U);
  peer.send_bytes(bytes.subspan(2000));
  turn();
  EXPECT_EQ(handled, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{connection->owner(), 5}}));
  EXPECT_EQ(charged(), 0U);
  EXPECT_NE(connections.find(connection->owner()), nullptr);
}

TEST_F(ConnectionsTest, APartOfAFrameIsForgottenWithItsConnection) {
  auto [peer, connection] = Peer::connect(connections);
  const std::uint64_t owner = connection->owner();
  connections.identify(*connection, 1);
  const std::vector<std::uint8_t> frame = frame_bytes(MessageType::kStatus, 5, std::vector<std::uint8_t>(3000), 0);
  peer.send_bytes(std::span(frame).first(2000));
  turn();
  EXPECT_GT(charged(), 0U);
  peer = Peer(os::socket_pair(os::SocketKind::kStream).take().first);
  turn();
  EXPECT_EQ(connections.find(owner), nullptr);
  EXPECT_EQ(charged(), 0U);
  EXPECT_TRUE(handled.empty());
}

TEST_F(ConnectionsTest, ABusyPeerIsReadInPortionsAndWithoutWaiting) {
  auto [busy, connection] = Peer::connect(connections);
  auto [other, other_connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  connections.identify(*other_connection, 2);
  constexpr std::uint64_t kFrames = 300;
  std::vector<std::uint8_t> stream;
  for (std::uint64_t request = 0; request < kFrames; ++request) {
    const auto frame = frame_bytes(MessageType::kStatus, request, {}, 0);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  busy.send_bytes(stream);
  other.send(MessageType::kStatus, 1000);
  turn();
  EXPECT_LT(handled.size(), kFrames) << "everything in one turn";
  EXPECT_EQ(std::count(handled.begin(), handled.end(), std::pair(other_connection->owner(), std::uint64_t{1000})), 1);
  for (int turns = 0; turns < 5; ++turns)
    turn();
  EXPECT_EQ(handled.size(), kFrames + 1);
  std::erase_if(handled, [&](const auto& frame) { return frame.second == 1000; });
  for (std::uint64_t request = 0; request < handled.size(); ++request)
    EXPECT_EQ(handled[request].second, request);
}

TEST_F(ConnectionsTest, GarbageIsRefusedAndTheConnectionClosed) {
  auto [peer, connection] = Peer::connect(connections);
  auto [other, other_connection] = Peer::connect(connections);
  connections.identify(*connection, 3);
  connections.identify(*other_connection, 4);
  const std::uint64_t owner = connection->owner();
  peer.send_bytes(std::vector<std::uint8_t>(100, 0x5a));
  turn();
  const std::vector<Frame> answers = peer.receive();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(status_of(answers[0]).code(), Code::kInvalidArgument);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.is_closed);
  EXPECT_EQ(closed, (std::vector<std::pair<std::uint64_t, std::uint32_t>>{{owner, 3}}));
  EXPECT_NE(connections.find(other_connection->owner()), nullptr);
}

// The client's side of a connection's rings.
std::unique_ptr<FrameRings> open_rings(Connections& connections, Connection& connection, Peer& peer) {
  connections.open_rings(connection, 1);
  const std::vector<Frame> answers = peer.receive();
  if (answers.size() != 1 || answers[0].fds.size() != 1) return nullptr;
  return FrameRings::attach(answers[0].fds[0]).take();
}

bool push(FrameRings& rings, std::uint64_t request, std::size_t body_bytes = 0) {
  return rings.request_producer.push(frame_header(MessageType::kStatus, request, body_bytes),
                                     std::vector<std::uint8_t>(body_bytes));
}

TEST_F(ConnectionsTest, ARequestInARingIsAnsweredInTheOther) {
  handler = [&](Connection& connection, Frame& frame) {
    connections.reply(connection.owner(), frame.header.request, Empty{});
  };
  auto [peer, connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  const auto rings = open_rings(connections, *connection, peer);
  ASSERT_NE(rings, nullptr);
  EXPECT_EQ(charged(), FrameRings::bytes());
  ASSERT_TRUE(push(*rings, 5));
  ASSERT_TRUE(rings->request_producer.wake()) << "nobody polls the ring yet";
  turn();
  EXPECT_TRUE(handled.empty());
  peer.send(MessageType::kRingFilled, 0);
  turn();
  EXPECT_EQ(handled, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{connection->owner(), 5}}));
  std::vector<Frame> answers;
  ASSERT_TRUE(rings->response_consumer.pop(answers, SIZE_MAX).is_ok());
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].header.request, 5U);
  const std::vector<Frame> woken = peer.receive();
  ASSERT_EQ(woken.size(), 1U) << "this side slept";
  EXPECT_EQ(woken[0].header.type, MessageType::kRingFilled);

  // Large answers, and those for which there is no room in the ring, come through the socket.
  handler = [&](Connection& on, Frame& frame) {
    connections.reply(on.owner(), frame.header.request, JsonReply{std::string(frame.header.request, 'x')});
  };
  peer.send(MessageType::kStatus, 2 * kMaxRingBodyBytes);
  turn();
  EXPECT_EQ(peer.receive().size(), 1U);
  answers.clear();
  ASSERT_TRUE(rings->response_consumer.pop(answers, SIZE_MAX).is_ok());
  ASSERT_EQ(answers.size(), 1U) << "a client that is blocked at the ring learns of the socket";
  EXPECT_EQ(answers[0].header.type, MessageType::kSocketFilled);
  const std::uint64_t many = kRingBytes / 1000 + 2;
  for (std::uint64_t i = 0; i < many; ++i)
    peer.send(MessageType::kStatus, 1000);
  turn();
  answers.clear();
  ASSERT_TRUE(rings->response_consumer.pop(answers, SIZE_MAX).is_ok());
  const auto is_notice = [](const Frame& frame) {
    return frame.header.type == MessageType::kRingFilled || frame.header.type == MessageType::kSocketFilled;
  };
  std::erase_if(answers, is_notice);
  EXPECT_LT(answers.size(), many);
  std::vector<Frame> others = peer.receive();
  std::erase_if(others, is_notice);
  EXPECT_EQ(answers.size() + others.size(), many);
}

TEST_F(ConnectionsTest, BusyRingsAreReadInPortions) {
  auto [peer, connection] = Peer::connect(connections);
  auto [other, other_connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  connections.identify(*other_connection, 2);
  const auto rings = open_rings(connections, *connection, peer);
  ASSERT_NE(rings, nullptr);
  std::uint64_t pushed = 0;
  while (push(*rings, pushed))
    ++pushed;
  EXPECT_GT(pushed, 100U);
  peer.send(MessageType::kRingFilled, 0);
  turn();
  EXPECT_LT(handled.size(), pushed) << "everything in one turn";
  other.send(MessageType::kStatus, 9999);
  for (int turns = 0; turns < 100 && handled.size() < pushed + 1; ++turns)
    turn();
  EXPECT_EQ(handled.size(), pushed + 1) << "sockets are looked at beside rings";
}

TEST_F(ConnectionsTest, ADamagedRingClosesItsConnectionOnly) {
  auto [peer, connection] = Peer::connect(connections);
  auto [other, other_connection] = Peer::connect(connections);
  connections.identify(*connection, 3);
  connections.identify(*other_connection, 4);
  const auto rings = open_rings(connections, *connection, peer);
  ASSERT_NE(rings, nullptr);
  EXPECT_TRUE(rings->request_producer.push({7, MessageType::kStatus, 0, 0, 0, 1}, {}));
  peer.send(MessageType::kRingFilled, 0);
  turn();
  turn();
  EXPECT_TRUE(handled.empty());
  std::vector<Frame> answers;
  ASSERT_TRUE(rings->response_consumer.pop(answers, SIZE_MAX).is_ok());
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(status_of(answers[0]).code(), Code::kInvalidArgument);
  EXPECT_EQ(closed.size(), 1U);
  EXPECT_NE(connections.find(other_connection->owner()), nullptr);
  EXPECT_EQ(charged(), 0U);
}

TEST_F(ConnectionsTest, AHandlerMayCloseConnectionsWhoseRingsAreFull) {
  auto [first_peer, first] = Peer::connect(connections);
  auto [second_peer, second] = Peer::connect(connections);
  const std::uint64_t first_owner = first->owner();
  const std::uint64_t second_owner = second->owner();
  connections.identify(*first, 1);
  connections.identify(*second, 2);
  const auto first_rings = open_rings(connections, *first, first_peer);
  const auto second_rings = open_rings(connections, *second, second_peer);
  handler = [&](Connection&, Frame&) {
    connections.close(first_owner);
    connections.close(second_owner);
  };
  ASSERT_TRUE(push(*first_rings, 1) && push(*first_rings, 2) && push(*second_rings, 3));
  first_peer.send(MessageType::kRingFilled, 0);
  second_peer.send(MessageType::kRingFilled, 0);
  turn();
  turn();
  EXPECT_EQ(handled.size(), 1U);
  EXPECT_EQ(closed.size(), 2U);
}

// Its descriptor may have been lost, or it may have stopped waiting for the answer.
TEST_F(ConnectionsTest, AClientThatDoesNotUseItsRingsIsAnsweredThroughTheSocket) {
  handler = [&](Connection& connection, Frame& frame) {
    connections.reply(connection.owner(), frame.header.request, Empty{});
  };
  auto [peer, connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  ASSERT_NE(open_rings(connections, *connection, peer), nullptr);
  peer.send(MessageType::kStatus, 5);
  turn();
  const std::vector<Frame> answers = peer.receive();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].header.type, MessageType::kReply);
  EXPECT_EQ(answers[0].header.request, 5U);
}

TEST_F(ConnectionsTest, RingsAreOpenedOnce) {
  auto [peer, connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  ASSERT_NE(open_rings(connections, *connection, peer), nullptr);
  connections.open_rings(*connection, 2);
  const std::vector<Frame> refused = peer.receive();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(status_of(refused[0]).code(), Code::kInvalidArgument);
}

TEST_F(ConnectionsTest, AConnectionThatSaysNothingIsClosedInTime) {
  const std::uint64_t begin = os::monotonic_ns();
  auto [silent, connection] = Peer::connect(connections);
  auto [identified, identified_connection] = Peer::connect(connections);
  connections.identify(*identified_connection, 1);
  const std::uint64_t owner = connection->owner();
  while (connections.find(owner) != nullptr && os::monotonic_ns() - begin < 20'000'000'000)
    turn();
  EXPECT_EQ(connections.find(owner), nullptr);
  EXPECT_GT(os::monotonic_ns() - begin, 50'000'000U);
  EXPECT_NE(connections.find(identified_connection->owner()), nullptr);
  EXPECT_TRUE(closed.empty()) << "it had no client";
}

TEST_F(ConnectionsTest, AHandlerMayCloseConnectionsItsOwnIncluded) {
  auto [first, first_connection] = Peer::connect(connections);
  auto [second, second_connection] = Peer::connect(connections);
  connections.identify(*first_connection, 1);
  connections.identify(*second_connection, 2);
  handler = [&](Connection&, Frame&) {
    connections.close_of_client(1);
    connections.close_of_client(2);
  };
  for (int i = 0; i < 3; ++i) {
    first.send(MessageType::kStatus, 1);
    second.send(MessageType::kStatus, 1);
  }
  turn();
  EXPECT_EQ(handled.size(), 1U) << "the rest came from connections that were closed";
  EXPECT_EQ(closed.size(), 2U);
  EXPECT_TRUE(connections.is_empty());
}

TEST_F(ConnectionsTest, WhatIsMarkedIsClosedInTheSameOrTheNextTurnAndSilentUntilThen) {
  auto [peer, connection] = Peer::connect(connections);
  auto [marks, marking_connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  connections.identify(*marking_connection, 2);
  handler = [&, target = connection->owner()](Connection&, Frame&) {
    connections.mark_closing(*connections.find(target));
    connections.reply(target, 9, Empty{});
  };
  marks.send(MessageType::kStatus, 1);
  turn();
  turn();
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.is_closed);
  EXPECT_EQ(closed.size(), 1U);
}

TEST_F(ConnectionsTest, UnreadAnswersAreSentWhenThePeerReads) {
  auto [peer, connection] = Peer::connect(connections);
  connections.identify(*connection, 1);
  JsonReply body;
  body.json.assign(3 * kOneMiB, 'x');
  connections.reply(connection->owner(), 8, body);
  EXPECT_GT(charged(), kOneMiB);
  std::vector<Frame> answers;
  for (int turns = 0; turns < 1000 && answers.empty(); ++turns) {
    turn();
    answers = peer.receive();
  }
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].header.request, 8U);
  EXPECT_GT(answers[0].body.size(), 3 * kOneMiB);
  turn();
  EXPECT_EQ(charged(), 0U);
}

TEST_F(ConnectionsTest, WhoHoldsMostIsClosedAtTheLimitOfAllAndAFairShareIsAlwaysServed) {
  std::vector<Peer> peers;
  std::vector<std::uint64_t> owners;
  for (std::uint32_t client = 0; client < 3; ++client) {
    auto [peer, connection] = Peer::connect(connections);
    connections.identify(*connection, client);
    peers.push_back(std::move(peer));
    owners.push_back(connection->owner());
  }
  JsonReply large;
  large.json.assign(kMinBufferLimit / 2 - kOneMiB / 16, 'x');
  connections.reply(owners[0], 1, large);
  connections.reply(owners[1], 1, large);
  turn();
  EXPECT_TRUE(closed.empty());
  JsonReply small;
  small.json.assign(kFairBufferBytes / 2, 'x');
  connections.reply(owners[2], 1, small);
  const std::uint64_t held = charged();
  EXPECT_GT(held, kMinBufferLimit);
  turn();
  EXPECT_TRUE(closed.empty()) << "beyond the limit, but within its share";
  connections.reply(owners[1], 2, small);
  turn();
  ASSERT_EQ(closed.size(), 1U);
  EXPECT_EQ(closed[0].first, owners[1]);
  EXPECT_LT(charged(), held - kMinBufferLimit / 3);
  EXPECT_NE(connections.find(owners[2]), nullptr);
  large.json.resize(4 * kOneMiB);
  connections.reply(owners[0], 2, large);  // there is room again
  turn();
  EXPECT_EQ(closed.size(), 1U);
  for (const std::uint64_t owner : owners)
    connections.close(owner);
  EXPECT_EQ(charged(), 0U);
}

TEST_F(ConnectionsTest, WaitingRequestsAreLimitedForEachAndForAll) {
  constexpr std::uint64_t kSaturating = kMaxWaitingOfAll / kMaxWaiting;
  std::vector<Peer> peers;
  std::vector<Connection*> all;
  for (std::uint32_t client = 0; client <= kSaturating; ++client) {
    auto [peer, connection] = Peer::connect(connections);
    connections.identify(*connection, client);
    peers.push_back(std::move(peer));
    all.push_back(connection);
  }
  for (std::size_t i = 0; i < kSaturating; ++i) {
    EXPECT_TRUE(connections.begin_wait(*all[i], kMaxWaiting).is_ok());
    const Status refused = connections.begin_wait(*all[i], 1);
    EXPECT_EQ(refused.code(), Code::kStoreFull);
    EXPECT_TRUE(refused.retryable());
  }
  Connection& last = *all.back();
  EXPECT_TRUE(connections.begin_wait(last, kFairWaiting).is_ok()) << "its fair share";
  EXPECT_EQ(connections.begin_wait(last, 1).code(), Code::kStoreFull);
  connections.end_wait(last.owner(), 1);
  EXPECT_TRUE(connections.begin_wait(last, 1).is_ok());
  const std::uint64_t ended = all[0]->owner();
  connections.close(ended);  // releases what it waited for
  EXPECT_TRUE(connections.begin_wait(last, kMaxWaiting - kFairWaiting).is_ok());
  connections.end_wait(ended, kMaxWaiting);  // of a connection that has ended: nothing
  auto [peer, fresh] = Peer::connect(connections);
  EXPECT_EQ(connections.begin_wait(*fresh, kFairWaiting + 1).code(), Code::kStoreFull);
}

}  // namespace
}  // namespace entrepot
