#include "os/socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <thread>

#include "os/events.h"
#include "os/memfd.h"
#include "os/process.h"
#include "os/scratch.h"
#include "os/test_deadline.h"

namespace entrepot::os {
namespace {

using entrepot::testing::Scratch;

TEST(Socket, ListenConnectAccept) {
  const Scratch scratch;
  const std::string path = scratch.path("s");
  const UniqueFd listening = listen_unix(path).take();
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_FALSE(accept_unix(listening.get())->valid());
  const UniqueFd client = connect_unix(path, test_deadline()).take();
  ASSERT_TRUE(*wait_readable(listening.get(), test_deadline()));
  const UniqueFd server = accept_unix(listening.get()).take();
  ASSERT_TRUE(server.valid());
  const PeerCredentials peer = peer_credentials(server.get()).take();
  EXPECT_EQ(peer.uid, current_uid());
  EXPECT_EQ(peer.pid, static_cast<std::uint32_t>(current_pid()));
}

TEST(Socket, TheSenderIsKnownIfItWasRequestedBefore) {
  const auto [receiver, sender] = socket_pair(SocketKind::kStream).take();
  EXPECT_EQ(sender_of_next(receiver.get()), 0U);
  ASSERT_TRUE(request_sender(receiver.get()).is_ok());
  EXPECT_EQ(sender_of_next(receiver.get()), 0U);
  ASSERT_EQ(send_some(sender.get(), std::array<std::uint8_t, 1>{7})->bytes, 1U);
  for (int looks = 0; looks < 2; ++looks) {  // it stays there
    EXPECT_EQ(sender_of_next(receiver.get()), static_cast<std::uint32_t>(current_pid()));
  }
  std::array<std::uint8_t, 1> received{};
  std::vector<UniqueFd> fds;
  ASSERT_TRUE(receive_all(receiver.get(), received, fds, test_deadline()).is_ok());
  EXPECT_EQ(received[0], 7U);
  EXPECT_EQ(sender_of_next(receiver.get()), 0U);
}

TEST(Socket, SecondListenerIsRefusedAndStaleSocketReplaced) {
  const Scratch scratch;
  const std::string path = scratch.path("s");
  {
    const UniqueFd first = listen_unix(path).take();
    const Result<UniqueFd> second = listen_unix(path);
    EXPECT_EQ(second.code(), Code::kStoreUnavailable);
    EXPECT_NE(second.status().message().find(path), std::string::npos);
  }
  // The socket file still exists, but nobody listens.
  EXPECT_EQ(connect_unix(path, test_deadline()).code(), Code::kStoreUnavailable);
  EXPECT_TRUE(listen_unix(path).is_ok());
}

TEST(Socket, OnlyASocketThatNoProcessHasIsAbandoned) {
  const testing::Scratch folder;
  const std::string path = folder.path("s.sock");
  EXPECT_FALSE(is_socket_abandoned(path)) << "it does not exist";
  UniqueFd listening = listen_unix(path).take();
  EXPECT_FALSE(is_socket_abandoned(path));
  const auto accepted = accept_unix(listening.get());
  EXPECT_TRUE(accepted.is_ok() && !accepted->valid()) << "nothing was queued";
  listening.reset();
  EXPECT_TRUE(is_socket_abandoned(path));
}

TEST(Socket, OddPathsAreRefused) {
  const Scratch scratch;
  scratch.write("file", "x");
  EXPECT_EQ(listen_unix(scratch.path("file")).code(), Code::kInvalidArgument);
  EXPECT_EQ(listen_unix(scratch.path(std::string(200, 'a'))).code(), Code::kInvalidArgument);
  EXPECT_EQ(connect_unix("", test_deadline()).code(), Code::kInvalidArgument);
  EXPECT_EQ(connect_unix(scratch.path("nobody"), test_deadline()).code(), Code::kStoreUnavailable);
}

TEST(Socket, DescriptorsTravelWithTheFirstByte) {
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  const UniqueFd first = create_memfd("first", 4096).take();
  const UniqueFd second = create_memfd("second", 4096).take();
  const std::array<std::uint8_t, 5> data{1, 2, 3, 4, 5};
  const std::array<int, 2> fds{first.get(), second.get()};
  ASSERT_TRUE(send_all(a.get(), data, fds, test_deadline()).is_ok());
  std::array<std::uint8_t, 5> back{};
  std::vector<UniqueFd> came;
  ASSERT_TRUE(receive_all(b.get(), back, came, test_deadline()).is_ok());
  EXPECT_EQ(back, data);
  ASSERT_EQ(came.size(), 2U);
  EXPECT_TRUE(*same_file(came[0].get(), first.get()));
  EXPECT_TRUE(*same_file(came[1].get(), second.get()));
}

TEST(Socket, LargeTransfersArriveWhole) {
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  std::vector<std::uint8_t> data(3U << 20);
  std::iota(data.begin(), data.end(), std::uint8_t{0});
  std::thread sender([&] { EXPECT_TRUE(send_all(a.get(), data, {}, test_deadline()).is_ok()); });
  std::vector<std::uint8_t> back(data.size());
  std::vector<UniqueFd> fds;
  EXPECT_TRUE(receive_all(b.get(), back, fds, test_deadline()).is_ok());
  sender.join();
  EXPECT_EQ(back, data);
}

TEST(Socket, SeqPacketKeepsMessagesApart) {
  auto [a, b] = socket_pair(SocketKind::kSeqPacket).take();
  const std::array<std::uint8_t, 3> three{1, 2, 3};
  ASSERT_TRUE(send_some(a.get(), three).is_ok());
  ASSERT_TRUE(send_some(a.get(), std::span(three).first(2)).is_ok());
  std::array<std::uint8_t, 16> back{};
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive_some(b.get(), back, fds)->bytes, 3U);
  EXPECT_EQ(receive_some(b.get(), back, fds)->bytes, 2U);
}

TEST(Socket, WhatIsLookedAtStaysInTheSocket) {
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  ASSERT_TRUE(set_nonblocking(b.get(), true).is_ok());
  std::array<std::uint8_t, 16> back{};
  EXPECT_TRUE(peek_some(b.get(), back)->would_block);
  const std::array<std::uint8_t, 3> three{1, 2, 3};
  ASSERT_TRUE(send_some(a.get(), three).is_ok());
  for (int look = 0; look < 2; ++look) {
    const IoResult seen = peek_some(b.get(), back).take();
    EXPECT_EQ(seen.bytes, 3U);
    EXPECT_FALSE(seen.fds_lost);
    EXPECT_EQ(back[2], 3);
  }
  const int fd = b.get();
  ASSERT_TRUE(send_some(a.get(), three, std::span(&fd, 1)).is_ok());
  EXPECT_TRUE(peek_some(b.get(), back)->fds_lost);
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive_some(b.get(), back, fds)->bytes, 6U);
  EXPECT_EQ(fds.size(), 1U);
  a.reset();
  EXPECT_TRUE(peek_some(b.get(), back)->closed);
}

TEST(Socket, EndOfFileTimeoutAndBrokenPipeAreToldApart) {
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  std::array<std::uint8_t, 4> data{};
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive_all(b.get(), data, fds, Deadline::after_ms(5)).code(), Code::kTimeout);
  ASSERT_TRUE(set_nonblocking(b.get(), true).is_ok());
  EXPECT_TRUE(receive_some(b.get(), data, fds)->would_block);
  a.reset();
  EXPECT_TRUE(receive_some(b.get(), data, fds)->closed);
  EXPECT_EQ(receive_all(b.get(), data, fds, test_deadline()).code(), Code::kStoreUnavailable);
  EXPECT_EQ(send_all(b.get(), data, {}, test_deadline()).code(), Code::kStoreUnavailable);  // and no SIGPIPE
}

TEST(Socket, AReaderThatNeverReadsEndsInTimeout) {
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  ASSERT_TRUE(set_nonblocking(a.get(), true).is_ok());
  const std::vector<std::uint8_t> data(16U << 20);
  EXPECT_EQ(send_all(a.get(), data, {}, Deadline::after_ms(20)).code(), Code::kTimeout);
}

}  // namespace
}  // namespace entrepot::os
