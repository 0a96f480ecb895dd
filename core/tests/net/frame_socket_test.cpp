// Frames over a socket: whole, in pieces, with descriptors, malformed, and to a peer that does not read.
#include "net/frame_socket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/error.h"
#include "os/events.h"
#include "os/memfd.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Frames : ::testing::Test {
  Frames() {
    auto made = os::socket_pair(os::SocketKind::kStream);
    EXPECT_TRUE(made.is_ok());
    EXPECT_TRUE(os::set_nonblocking(made->first.get(), true).is_ok());
    EXPECT_TRUE(os::set_nonblocking(made->second.get(), true).is_ok());
    ours = std::make_unique<FrameSocket>(std::move(made->first));
    theirs = std::move(made->second);
  }
  void write(const Bytes& bytes) {
    ASSERT_TRUE(os::send_all(theirs.get(), bytes, {}, os::Deadline::after_ms(5000)).is_ok());
  }
  static Bytes body_of(std::size_t size, std::uint8_t seed) {
    Bytes body(size);
    for (std::size_t i = 0; i < size; ++i)
      body[i] = static_cast<std::uint8_t>(i * 7 + seed);
    return body;
  }

  std::unique_ptr<FrameSocket> ours;
  UniqueFd theirs;
};

TEST_F(Frames, ComeWholeHoweverTheyAreCut) {
  std::mt19937 random(1);
  Bytes stream;
  std::vector<Bytes> bodies;
  for (std::uint8_t i = 0; i < 40; ++i) {
    bodies.push_back(body_of(random() % 5000, i));
    const Bytes frame = frame_bytes(MessageType::kStatus, i, bodies.back(), 0);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  std::size_t seen = 0;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + random() % 3000, stream.size() - at);
    write(Bytes(stream.begin() + static_cast<std::ptrdiff_t>(at),
                stream.begin() + static_cast<std::ptrdiff_t>(at + piece)));
    at += piece;
    bool more = true;
    while (more) {
      FrameSocket::Incoming incoming = ours->receive();
      ASSERT_TRUE(incoming.status.is_ok()) << incoming.status.to_string();
      more = incoming.more;
      for (const Frame& frame : incoming.frames) {
        ASSERT_EQ(frame.header.request, seen);
        ASSERT_EQ(frame.body, bodies[seen]);
        ++seen;
      }
    }
  }
  EXPECT_EQ(seen, bodies.size());
}

// A frame that fills a read to the last byte is delivered exactly once, and so are the frames after it.
TEST_F(Frames, AFrameThatFillsTheReadIsGivenOnce) {
  std::uint64_t sent = 0;
  for (const std::size_t whole : {16U << 10, 32U << 10, 64U << 10, 128U << 10}) {
    write(frame_bytes(MessageType::kStatus, sent, body_of(whole - sizeof(FrameHeader), 1), 0));
    std::vector<std::uint64_t> came;
    for (int reads = 0; reads < 8; ++reads) {
      const FrameSocket::Incoming incoming = ours->receive();
      ASSERT_TRUE(incoming.status.is_ok()) << incoming.status.to_string();
      for (const Frame& frame : incoming.frames)
        came.push_back(frame.header.request);
    }
    EXPECT_EQ(came, std::vector<std::uint64_t>{sent++}) << whole;
  }
}

TEST_F(Frames, OneBusyPeerDoesNotKeepTheOthersWaiting) {
  Bytes stream;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Bytes frame = frame_bytes(MessageType::kStatus, i, {}, 0);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  write(stream);
  std::size_t seen = 0;
  while (true) {
    const FrameSocket::Incoming incoming = ours->receive();
    ASSERT_TRUE(incoming.status.is_ok());
    ASSERT_LE(incoming.frames.size(), 64U);
    seen += incoming.frames.size();
    if (!incoming.more) break;
  }
  EXPECT_EQ(seen, 1000U);
}

TEST_F(Frames, DescriptorsComeWithTheirFrame) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    auto memfd = os::create_memfd("test", i * 4096);
    ASSERT_TRUE(memfd.is_ok());
    const std::vector<int> fds(i, memfd->get());
    const Bytes frame = frame_bytes(MessageType::kHello, i, body_of(100, 0), i);
    ASSERT_TRUE(os::send_all(theirs.get(), frame, fds, os::Deadline::after_ms(5000)).is_ok());
  }
  std::vector<Frame> frames;
  while (frames.size() < 3) {
    FrameSocket::Incoming incoming = ours->receive();
    ASSERT_TRUE(incoming.status.is_ok()) << incoming.status.to_string();
    std::move(incoming.frames.begin(), incoming.frames.end(), std::back_inserter(frames));
  }
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(frames[i - 1].fds.size(), i);
    for (const UniqueFd& fd : frames[i - 1].fds)
      EXPECT_EQ(*os::file_bytes(fd.get()), i * 4096);
  }
}

TEST_F(Frames, WhatIsNoFrameBreaksTheConnection) {
  FrameHeader good{};
  good.magic = kFrameMagic;
  good.type = MessageType::kStatus;
  const auto broken = [&](const FrameHeader& header) {
    auto pair = os::socket_pair(os::SocketKind::kStream);
    ASSERT_TRUE(os::set_nonblocking(pair->first.get(), true).is_ok());
    FrameSocket socket(std::move(pair->first));
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&header);
    ASSERT_TRUE(os::send_all(pair->second.get(), {raw, sizeof(header)}, {}, os::Deadline::after_ms(5000)).is_ok());
    const FrameSocket::Incoming incoming = socket.receive();
    EXPECT_EQ(incoming.status.code(), Code::kInvalidArgument);
    EXPECT_TRUE(incoming.frames.empty());
  };
  FrameHeader bad = good;
  bad.magic = 0x4854'5450;
  broken(bad);
  bad = good;
  bad.body_bytes = kMaxBodyBytes + 1;
  broken(bad);
  bad = good;
  bad.fd_count = kMaxFds + 1;
  broken(bad);
  bad = good;
  bad.fd_count = 1;  // announced but not sent
  broken(bad);
}

TEST_F(Frames, WhatCameBeforeTheEndIsStillGiven) {
  write(frame_bytes(MessageType::kStatus, 7, body_of(10, 0), 0));
  theirs.reset();
  const FrameSocket::Incoming incoming = ours->receive();
  ASSERT_EQ(incoming.frames.size(), 1U);
  EXPECT_EQ(incoming.frames[0].header.request, 7U);
  EXPECT_EQ(ours->receive().status.code(), Code::kStoreUnavailable);
}

TEST_F(Frames, APeerThatDoesNotReadIsAnErrorAtTheLimit) {
  Status status;
  std::uint64_t sent = 0;
  while (status.is_ok() && sent < 1000) {
    status = ours->send(MessageType::kReply, sent++, Bytes(1U << 20));
  }
  EXPECT_EQ(status.code(), Code::kStoreFull) << sent;
  EXPECT_LE(sent, (kMaxUnsentBytes >> 20) + 4);
  EXPECT_TRUE(ours->wants_write());
}

TEST_F(Frames, LargeAnswersGoOutInPieces) {
  const Bytes body = body_of(3'000'000, 3);
  ASSERT_TRUE(ours->send(MessageType::kReply, 9, body).is_ok());
  Bytes got(sizeof(FrameHeader) + body.size());
  std::size_t have = 0;
  std::vector<UniqueFd> fds;
  while (have < got.size()) {
    ASSERT_TRUE(ours->flush().is_ok());
    const auto result = os::receive_some(theirs.get(), std::span(got).subspan(have), fds);
    ASSERT_TRUE(result.is_ok());
    have += result->bytes;
  }
  EXPECT_TRUE(std::equal(body.begin(), body.end(), got.begin() + sizeof(FrameHeader)));
  EXPECT_FALSE(ours->wants_write());
}

TEST_F(Frames, WhatAProcessHasNoDescriptorsForComesWithoutThem) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd lowest(::dup(theirs.get()));
  for (int taken : {0, 1}) {
    const std::vector<int> fds = {theirs.get(), theirs.get(), theirs.get()};
    const Bytes frame = frame_bytes(MessageType::kHello, 1, Bytes(10), fds.size());
    ASSERT_TRUE(os::send_all(theirs.get(), frame, fds, os::Deadline::after_ms(5000)).is_ok());
    rlimit few{static_cast<rlim_t>(lowest.get() + 1 + taken), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const FrameSocket::Incoming incoming = ours->receive();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_TRUE(incoming.status.is_ok()) << incoming.status.to_string();
    ASSERT_EQ(incoming.frames.size(), 1U);
    EXPECT_TRUE(incoming.frames[0].lost_fds());
    EXPECT_TRUE(incoming.frames[0].fds.empty());
  }
  // The next frame has all of its descriptors.
  const std::vector<int> fds = {theirs.get()};
  ASSERT_TRUE(
      os::send_all(theirs.get(), frame_bytes(MessageType::kHello, 2, Bytes(10), 1), fds, os::Deadline::after_ms(5000))
          .is_ok());
  const FrameSocket::Incoming incoming = ours->receive();
  ASSERT_EQ(incoming.frames.size(), 1U);
  EXPECT_FALSE(incoming.frames[0].lost_fds());
  EXPECT_EQ(incoming.frames[0].fds.size(), 1U);
  const Status error = descriptors_lost_error();
  EXPECT_TRUE(os::is_out_of_descriptors(error));
  EXPECT_NE(error.message().find(concat("process ", os::current_pid(),
                                        " (net_test) has used all of its file descriptors, limit ", before.rlim_cur,
                                        " (ulimit -n)")),
            std::string::npos)
      << error.message();
}

// Random bytes, half of them with valid headers: no crash, and no more memory than was sent.
TEST(FrameFuzz, RandomBytesNeverCrash) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    auto pair = os::socket_pair(os::SocketKind::kStream);
    ASSERT_TRUE(pair.is_ok());
    ASSERT_TRUE(os::set_nonblocking(pair->first.get(), true).is_ok());
    FrameSocket socket(std::move(pair->first));
    Bytes stream;
    for (int part = 0; part < 5; ++part) {
      Bytes piece(random() % 300);
      for (auto& byte : piece)
        byte = static_cast<std::uint8_t>(random());
      if (random() % 2 == 0)
        piece = frame_bytes(static_cast<MessageType>(random() % 60), random(), piece, random() % 3);
      if (!piece.empty() && random() % 4 == 0)
        piece[random() % piece.size()] ^= static_cast<std::uint8_t>(1U << (random() % 8));
      stream.insert(stream.end(), piece.begin(), piece.end());
    }
    if (stream.empty()) continue;
    ASSERT_TRUE(os::send_all(pair->second.get(), stream, {}, os::Deadline::after_ms(5000)).is_ok());
    pair->second.reset();
    for (int reads = 0; reads < 20; ++reads) {
      const FrameSocket::Incoming incoming = socket.receive();
      if (!incoming.status.is_ok()) break;
      ASSERT_LT(reads, 19) << "the end of file was not seen";
    }
  }
}

}  // namespace
}  // namespace entrepot
