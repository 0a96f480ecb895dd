// The connection against the other end of a socket pair: replies out of order, to many threads, in pieces, too late.
#include "client/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

const os::Deadline kSoon = os::Deadline::after_ms(20'000);

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    auto pair = os::socket_pair(os::SocketKind::kStream).take();
    connection = std::make_unique<Connection>(std::move(pair.first));
    peer = std::move(pair.second);
  }

  FrameHeader take() {
    FrameHeader header{};
    std::vector<UniqueFd> fds;
    EXPECT_TRUE(
        os::receive_all(peer.get(), {reinterpret_cast<std::uint8_t*>(&header), sizeof(header)}, fds, kSoon).is_ok());
    std::vector<std::uint8_t> body(header.body_bytes);
    EXPECT_TRUE(os::receive_all(peer.get(), body, fds, kSoon).is_ok());
    return header;
  }

  static std::vector<std::uint8_t> frame(std::uint64_t request, std::vector<std::uint8_t> body, std::uint32_t fds = 0,
                                         MessageType type = MessageType::kReply) {
    const FrameHeader header{kFrameMagic, type, 0, static_cast<std::uint32_t>(body.size()), fds, request};
    std::vector<std::uint8_t> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes.insert(bytes.end(), body.begin(), body.end());
    return bytes;
  }

  void give(const std::vector<std::uint8_t>& bytes, std::span<const int> fds = {}) {
    ASSERT_TRUE(os::send_all(peer.get(), bytes, fds, kSoon).is_ok());
  }

  Result<Frame> call(std::uint64_t ms = 20'000, const Interrupt& interrupt = {}, Connection::Abandoned abandoned = {}) {
    return connection->call(MessageType::kStatus, {}, {}, os::Deadline::after_ms(ms), interrupt, std::move(abandoned));
  }

  std::unique_ptr<Connection> connection;
  UniqueFd peer;
};

TEST_F(ConnectionTest, ManyThreadsGetTheirOwnAnswersInAnyOrder) {
  constexpr int kThreads = 8;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<std::uint8_t> body = {static_cast<std::uint8_t>(i)};
      auto answer = connection->call(MessageType::kInfo, body, {}, kSoon, {});
      if (answer.is_ok() && answer->body == body) ++right;
    });
  }
  std::vector<std::pair<std::uint64_t, std::uint8_t>> asked;
  for (int i = 0; i < kThreads; ++i) {
    FrameHeader header{};
    std::uint8_t body = 0;
    std::vector<UniqueFd> fds;
    ASSERT_TRUE(
        os::receive_all(peer.get(), {reinterpret_cast<std::uint8_t*>(&header), sizeof(header)}, fds, kSoon).is_ok());
    ASSERT_TRUE(os::receive_all(peer.get(), {&body, 1}, fds, kSoon).is_ok());
    asked.emplace_back(header.request, body);
  }
  for (auto it = asked.rbegin(); it != asked.rend(); ++it)
    give(frame(it->first, {it->second}));
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(right, kThreads);
}

TEST_F(ConnectionTest, AFrameInPiecesWithADescriptor) {
  std::thread daemon([&] {
    const auto header = take();
    const UniqueFd memory = os::create_memfd("x", 4096).take();
    const auto bytes = frame(header.request, std::vector<std::uint8_t>(1000, 7), 1);
    const int fd = memory.get();
    give({bytes.begin(), bytes.begin() + 10}, {&fd, 1});
    give({bytes.begin() + 10, bytes.begin() + 600});
    give({bytes.begin() + 600, bytes.end()});
  });
  auto answer = call();
  daemon.join();
  ASSERT_TRUE(answer.is_ok());
  EXPECT_EQ(answer->body.size(), 1000U);
  ASSERT_EQ(answer->fds.size(), 1U);
  EXPECT_EQ(os::file_bytes(answer->fds[0].get()).take(), 4096U);
}

TEST_F(ConnectionTest, AnErrorKeepsItsCode) {
  std::thread daemon([&] {
    ErrorBody error;
    error.code = Code::kStoreFull;
    error.retryable = 1;
    error.message = "full of eels";
    give(frame(take().request, to_wire(error), 0, MessageType::kError));
  });
  const auto answer = call();
  daemon.join();
  EXPECT_EQ(answer.code(), Code::kStoreFull);
  EXPECT_TRUE(answer.status().retryable());
  EXPECT_EQ(answer.status().message(), "full of eels");
  EXPECT_FALSE(connection->broken());
}

TEST_F(ConnectionTest, TimeIsOverAndTheLateAnswerGoesToItsHandler) {
  std::atomic<int> late = 0;
  EXPECT_EQ(call(30, {}, [&](Frame frame) { late += static_cast<int>(frame.body.size()); }).code(), Code::kTimeout);
  const auto first = take();
  std::thread daemon([&] {
    const auto second = take();
    give(frame(first.request, {1, 2, 3}));
    give(frame(second.request, {9}));
  });
  ASSERT_TRUE(call().is_ok());
  daemon.join();
  EXPECT_EQ(late, 3);
}

TEST_F(ConnectionTest, AnInterruptEndsTheWait) {
  const Interrupt now{[](void*) { return true; }, nullptr};
  EXPECT_EQ(call(20'000, now).code(), Code::kTimeout);
  EXPECT_FALSE(connection->broken());
}

TEST_F(ConnectionTest, ThePeersEndWakesAllWhoWait) {
  std::atomic<int> woken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (call().code() == Code::kStoreUnavailable) ++woken;
    });
  }
  for (int i = 0; i < 4; ++i)
    static_cast<void>(take());
  peer.reset();
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(woken, 4);
  EXPECT_TRUE(connection->broken());
  EXPECT_EQ(call().code(), Code::kStoreUnavailable);
}

TEST_F(ConnectionTest, RubbishBreaksIt) {
  give(std::vector<std::uint8_t>(64, 'x'));
  EXPECT_EQ(call().code(), Code::kStoreUnavailable);
  EXPECT_TRUE(connection->broken());
}

TEST_F(ConnectionTest, ATooLargeRequestIsRefusedHere) {
  const std::vector<std::uint8_t> body(kMaxBodyBytes + 1);
  EXPECT_EQ(connection->call(MessageType::kSeal, body, {}, kSoon, {}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(connection->broken());
}

}  // namespace
}  // namespace entrepot
