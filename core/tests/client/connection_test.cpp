// The connection against the other end of a socket pair: replies out of order, to many threads, in pieces, too late.
#include "client/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "net/frame_socket.h"
#include "os/events.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

os::Deadline soon() { return os::Deadline::after_ms(20'000); }

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
        os::receive_all(peer.get(), {reinterpret_cast<std::uint8_t*>(&header), sizeof(header)}, fds, soon()).is_ok());
    std::vector<std::uint8_t> body(header.body_bytes);
    EXPECT_TRUE(os::receive_all(peer.get(), body, fds, soon()).is_ok());
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
    ASSERT_TRUE(os::send_all(peer.get(), bytes, fds, soon()).is_ok());
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
      auto answer = connection->call(MessageType::kInfo, body, {}, soon(), {});
      if (answer.is_ok() && answer->body == body) ++right;
    });
  }
  std::vector<std::pair<std::uint64_t, std::uint8_t>> asked;
  for (int i = 0; i < kThreads; ++i) {
    FrameHeader header{};
    std::uint8_t body = 0;
    std::vector<UniqueFd> fds;
    ASSERT_TRUE(
        os::receive_all(peer.get(), {reinterpret_cast<std::uint8_t*>(&header), sizeof(header)}, fds, soon()).is_ok());
    ASSERT_TRUE(os::receive_all(peer.get(), {&body, 1}, fds, soon()).is_ok());
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

// A daemon that answers from the socket and from rings, if it has them, until the connection ends.
class RingDaemon {
 public:
  enum class Rings : std::uint8_t { kOpened, kRefused, kOfOtherSize };

  RingDaemon(const UniqueFd& socket, Rings offers) : frames_(os::duplicate(socket.get()).take()), offers_(offers) {
    EXPECT_TRUE(os::set_nonblocking(frames_.fd(), true).is_ok());
    thread_ = std::thread([this] { run(); });
  }
  ~RingDaemon() { thread_.join(); }
  RingDaemon(const RingDaemon&) = delete;
  RingDaemon& operator=(const RingDaemon&) = delete;
  RingDaemon(RingDaemon&&) = delete;
  RingDaemon& operator=(RingDaemon&&) = delete;

  // How many requests came through the ring.
  [[nodiscard]] int from_ring() const { return from_ring_; }

 private:
  void run() {
    while (true) {
      FrameSocket::Incoming incoming = frames_.receive();
      for (const Frame& frame : incoming.frames)
        serve(frame);
      if (rings_) {
        std::vector<Frame> requests;
        EXPECT_TRUE(rings_->request_consumer.pop(requests, SIZE_MAX).is_ok());
        from_ring_ += static_cast<int>(requests.size());
        for (const Frame& frame : requests)
          serve(frame);
        if (!rings_->request_consumer.sleep()) continue;
      }
      if (!incoming.status.is_ok()) return;
      EXPECT_TRUE(os::wait_readable(frames_.fd(), soon()).is_ok());
    }
  }
  void serve(const Frame& frame) {
    const std::uint64_t request = frame.header.request;
    if (frame.header.type == MessageType::kRingFilled) return;
    if (frame.header.type != MessageType::kOpenRings) return reply(request, frame.body);
    ErrorBody error;
    error.code = Code::kStoreFull;
    if (offers_ == Rings::kRefused) {
      EXPECT_TRUE(frames_.send(MessageType::kError, request, to_wire(error)).is_ok());
      return;
    }
    auto created = FrameRings::create().take();
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(created.fd));
    const OpenRingsReply body{offers_ == Rings::kOpened ? kRingBytes : kRingBytes * 2};
    EXPECT_TRUE(frames_.send(MessageType::kReply, request, to_wire(body), std::move(fds)).is_ok());
    if (offers_ == Rings::kOpened) rings_ = std::move(created.rings);
  }
  void reply(std::uint64_t request, const std::vector<std::uint8_t>& body) {
    const FrameHeader header = frame_header(MessageType::kReply, request, body.size());
    if (rings_ && rings_->response_producer.push(header, body)) {
      const bool wakes = rings_->response_producer.wake();
      EXPECT_TRUE(!wakes || frames_.send(MessageType::kRingFilled, 0, {}).is_ok());
      return;
    }
    EXPECT_TRUE(frames_.send(MessageType::kReply, request, body).is_ok());
    const FrameHeader notice = frame_header(MessageType::kSocketFilled, 0, 0);
    if (rings_ && rings_->response_producer.push(notice, {})) static_cast<void>(rings_->response_producer.wake());
  }

  FrameSocket frames_;
  const Rings offers_;
  std::unique_ptr<FrameRings> rings_;  // used by the thread only
  std::atomic<int> from_ring_ = 0;
  std::thread thread_;
};

// Every call gets its own body back, whichever way it went.
int echo(Connection& connection, int calls, int seed) {
  int wrong = 0;
  for (int i = 0; i < calls; ++i) {
    const std::size_t bytes = i % 50 == 49 ? 2 * kMaxRingBodyBytes : static_cast<std::size_t>(i % 700);
    const std::vector<std::uint8_t> body(bytes, static_cast<std::uint8_t>(seed + i));
    const auto answer = connection.call(MessageType::kInfo, body, {}, soon(), {});
    if (!answer.is_ok() || answer->body != body) ++wrong;
  }
  return wrong;
}

TEST_F(ConnectionTest, ABusyConnectionUsesRings) {
  connection->set_daemon(1, kProtocolMinor);
  RingDaemon daemon(peer, RingDaemon::Rings::kOpened);
  EXPECT_EQ(echo(*connection, 40, 0), 0);
  EXPECT_EQ(daemon.from_ring(), 0) << "they do not pay for a few requests";
  EXPECT_EQ(echo(*connection, 1000, 1), 0);
  EXPECT_GT(daemon.from_ring(), 900);
  connection->close(Status(Code::kStoreUnavailable, "done"));
  connection.reset();
}

TEST_F(ConnectionTest, ThreadsShareRings) {
  connection->set_daemon(1, kProtocolMinor);
  RingDaemon daemon(peer, RingDaemon::Rings::kOpened);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] { wrong += echo(*connection, 800, i); });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(daemon.from_ring(), 3000);
  connection.reset();
}

// All requests are answered through the socket.
void expect_no_rings(std::unique_ptr<Connection> connection, const UniqueFd& peer, RingDaemon::Rings offers) {
  connection->set_daemon(1, kProtocolMinor);
  RingDaemon daemon(peer, offers);
  EXPECT_EQ(echo(*connection, 300, 0), 0);
  EXPECT_EQ(daemon.from_ring(), 0);
  connection.reset();
}

TEST_F(ConnectionTest, WithoutRingsTheSocketGoesOn) {
  expect_no_rings(std::move(connection), peer, RingDaemon::Rings::kRefused);
}

TEST_F(ConnectionTest, RingsOfAnotherSizeAreNotUsed) {
  expect_no_rings(std::move(connection), peer, RingDaemon::Rings::kOfOtherSize);
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

// Three requests that are sent together, and the thread that waits for their answers.
class RequestsSentTogether : public ConnectionTest {
 protected:
  void ask(os::Deadline deadline, const Interrupt& interrupt = {}) {
    caller = std::thread([this, deadline, interrupt] {
      const std::vector<std::vector<std::uint8_t>> bodies = {{1}, {2}, {3}};
      answers = connection->call_all(MessageType::kInfo, bodies, deadline, interrupt);
    });
  }
  // All of them, though none has been answered.
  std::vector<std::uint64_t> take_all() {
    std::vector<std::uint64_t> requests;
    for (int i = 0; i < 3; ++i)
      requests.push_back(take().request);
    return requests;
  }

  std::thread caller;
  Result<std::vector<Result<Frame>>> answers = Status(Code::kInternal, "not answered");
};

TEST_F(RequestsSentTogether, EachGetsItsAnswerInAnyOrder) {
  ask(soon());
  const auto requests = take_all();
  const UniqueFd memory = os::create_memfd("x", 4096).take();
  const int fd = memory.get();
  for (const std::uint8_t i : std::vector<std::uint8_t>{2, 0, 1})
    give(frame(requests[i], {i}, 1), {&fd, 1});
  caller.join();
  ASSERT_TRUE(answers.is_ok()) << answers.status().to_string();
  ASSERT_EQ(answers->size(), 3U);
  for (std::uint8_t i = 0; i < 3; ++i) {
    ASSERT_TRUE((*answers)[i].is_ok());
    EXPECT_EQ((*answers)[i]->body, std::vector<std::uint8_t>{i});
    EXPECT_EQ((*answers)[i]->fds.size(), 1U);
  }
}

TEST_F(RequestsSentTogether, AnErrorIsThatOfItsRequest) {
  ask(soon());
  const auto requests = take_all();
  ErrorBody error;
  error.code = Code::kInvalidArgument;
  error.message = "no such eel";
  give(frame(requests[0], {7}));
  give(frame(requests[1], to_wire(error), 0, MessageType::kError));
  give(frame(requests[2], {9}));
  caller.join();
  ASSERT_TRUE(answers.is_ok());
  EXPECT_TRUE((*answers)[0].is_ok());
  EXPECT_EQ((*answers)[1].code(), Code::kInvalidArgument);
  EXPECT_EQ((*answers)[1].status().message(), "no such eel");
  EXPECT_TRUE((*answers)[2].is_ok());
}

TEST_F(RequestsSentTogether, WhatWasAnsweredBeforeThePeersEndCounts) {
  ask(soon());
  const auto requests = take_all();
  give(frame(requests[1], {5}));
  peer.reset();
  caller.join();
  ASSERT_TRUE(answers.is_ok());
  EXPECT_EQ((*answers)[0].code(), Code::kStoreUnavailable);
  ASSERT_TRUE((*answers)[1].is_ok());
  EXPECT_EQ((*answers)[1]->body, std::vector<std::uint8_t>{5});
  EXPECT_EQ((*answers)[2].code(), Code::kStoreUnavailable);
}

TEST_F(RequestsSentTogether, OnABrokenConnectionNoneIsSent) {
  connection->close(Status(Code::kStoreUnavailable, "done"));
  ask(soon());
  caller.join();
  EXPECT_EQ(answers.code(), Code::kStoreUnavailable);
}

TEST_F(RequestsSentTogether, AtTheDeadlineLateAnswersAreDropped) {
  ask(os::Deadline::after_ms(50));
  const auto requests = take_all();
  give(frame(requests[0], {1}));
  caller.join();
  EXPECT_EQ(answers.code(), Code::kTimeout);
  const UniqueFd memory = os::create_memfd("x", 4096).take();
  const int fd = memory.get();
  give(frame(requests[2], {3}, 1), {&fd, 1});
  give(frame(requests[1], {2}));
  std::thread daemon([&] { give(frame(take().request, {9})); });
  const auto later = call();
  daemon.join();
  ASSERT_TRUE(later.is_ok());
  EXPECT_EQ(later->body, std::vector<std::uint8_t>{9});
}

TEST_F(RequestsSentTogether, AnInterruptEndsTheWait) {
  ask(soon(), Interrupt{[](void*) { return true; }, nullptr});
  caller.join();
  EXPECT_EQ(answers.code(), Code::kTimeout);
  EXPECT_FALSE(connection->broken());
}

TEST_F(ConnectionTest, RequestsSentTogetherGoThroughRingsAndTheSocket) {
  connection->set_daemon(1, kProtocolMinor);
  RingDaemon daemon(peer, RingDaemon::Rings::kOpened);
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<std::vector<std::uint8_t>> bodies;
    for (int i = 0; i < 32; ++i)  // two go through the socket, which has room for the answers
      bodies.emplace_back(i % 16 == 9 ? 2 * kMaxRingBodyBytes : 10U, static_cast<std::uint8_t>(turn + i));
    const auto answers = connection->call_all(MessageType::kInfo, bodies, soon(), {});
    ASSERT_TRUE(answers.is_ok()) << answers.status().to_string();
    for (std::size_t i = 0; i < bodies.size(); ++i)
      ASSERT_TRUE((*answers)[i].is_ok() && (*answers)[i]->body == bodies[i]) << turn << ": " << i;
  }
  EXPECT_GT(daemon.from_ring(), 1000);
  connection.reset();
}

TEST_F(ConnectionTest, RubbishBreaksIt) {
  give(std::vector<std::uint8_t>(64, 'x'));
  EXPECT_EQ(call().code(), Code::kStoreUnavailable);
  EXPECT_TRUE(connection->broken());
}

TEST_F(ConnectionTest, ATooLargeRequestIsRefusedHere) {
  const std::vector<std::uint8_t> body(kMaxBodyBytes + 1);
  EXPECT_EQ(connection->call(MessageType::kSeal, body, {}, soon(), {}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(connection->broken());
}

}  // namespace
}  // namespace entrepot
