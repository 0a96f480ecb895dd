// Messages are cut out of the stream whatever the pieces, and a stream that is not Plasma's ends.
#include "plasma/message_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "os/socket.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint64_t kLimit = 1U << 20;

std::vector<std::uint8_t> message(std::int64_t version, std::int64_t type, std::int64_t length,
                                  const std::string& body) {
  std::vector<std::uint8_t> bytes(kHeaderBytes);
  std::memcpy(bytes.data(), &version, 8);
  std::memcpy(bytes.data() + 8, &type, 8);
  std::memcpy(bytes.data() + 16, &length, 8);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

std::string text_of(const Message& message) { return {message.body.begin(), message.body.end()}; }

TEST(MessageReader, PiecesOfAnySizeGiveTheSameMessages) {
  std::vector<std::uint8_t> stream;
  for (const std::string body : {"first", "", "the third one"}) {
    const auto bytes = message(0, 19, static_cast<std::int64_t>(body.size()), body);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    MessageReader reader(kLimit);
    std::vector<std::string> seen;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      const auto part = std::span(stream).subspan(at, std::min(piece, stream.size() - at));
      ASSERT_TRUE(reader.feed(part, {}).is_ok());
      while (auto next = reader.take())
        seen.push_back(text_of(*next));
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"first", "", "the third one"})) << piece;
  }
}

std::size_t bytes_in(const UniqueFd& socket) {
  std::array<std::uint8_t, 64U << 10> bytes{};
  return os::peek_some(socket.get(), bytes)->bytes;
}

TEST(MessageReader, AShortMessageStaysInTheSocketUntilItHasBeenAnswered) {
  auto [client, server] = os::socket_pair(os::SocketKind::kStream).take();
  ASSERT_TRUE(os::set_nonblocking(server.get(), true).is_ok());
  MessageReader reader(kLimit);
  const auto bytes = message(0, 19, 5, "first");
  ASSERT_TRUE(os::send_some(client.get(), bytes).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(text_of(*reader.take()), "first");
  EXPECT_EQ(bytes_in(server), bytes.size());
  ASSERT_TRUE(reader.take_left(server.get()).is_ok());
  EXPECT_EQ(bytes_in(server), 0U);
  ASSERT_TRUE(reader.take_left(server.get()).is_ok());  // nothing is left

  // What came meanwhile is read next.
  ASSERT_TRUE(os::send_some(client.get(), bytes).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(text_of(*reader.take()), "first");
  ASSERT_TRUE(os::send_some(client.get(), message(0, 19, 6, "second")).is_ok());
  ASSERT_TRUE(reader.take_left(server.get()).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(text_of(*reader.take()), "second");
}

TEST(MessageReader, APartOfAMessageALongOneAndADescriptorAreTakenAtOnce) {
  auto [client, server] = os::socket_pair(os::SocketKind::kStream).take();
  ASSERT_TRUE(os::set_nonblocking(server.get(), true).is_ok());
  MessageReader reader(kLimit);
  const auto bytes = message(0, 19, 5, "first");
  ASSERT_TRUE(os::send_some(client.get(), std::span(bytes).first(26)).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(bytes_in(server), 0U);
  EXPECT_FALSE(reader.take());
  ASSERT_TRUE(os::send_some(client.get(), std::span(bytes).subspan(26)).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(text_of(*reader.take()), "first");
  ASSERT_TRUE(reader.take_left(server.get()).is_ok());

  const std::string body(10'000, 'x');
  ASSERT_TRUE(os::send_some(client.get(), message(0, 19, 10'000, body)).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(bytes_in(server), 0U);
  EXPECT_EQ(text_of(*reader.take()), body);

  ASSERT_TRUE(os::send_some(client.get(), bytes).is_ok());
  const int fd = client.get();
  const std::array<std::uint8_t, 1> byte{};
  ASSERT_TRUE(os::send_some(client.get(), byte, std::span(&fd, 1)).is_ok());
  ASSERT_TRUE(*reader.read(server.get()));
  EXPECT_EQ(bytes_in(server), 0U);
  EXPECT_EQ(text_of(*reader.take()), "first");
  ASSERT_TRUE(reader.expect_descriptor().is_ok());
  EXPECT_TRUE(reader.take_descriptor());
}

TEST(MessageReader, AnotherVersionOrAnImpossibleLengthEndsIt) {
  for (const auto& [version, length] :
       {std::pair<std::int64_t, std::int64_t>{1, 5}, {0, -1}, {0, kLimit + 1}, {0, INT64_MAX}, {INT64_MIN, 0}}) {
    MessageReader reader(kLimit);
    EXPECT_EQ(reader.feed(message(version, 1, length, ""), {}).code(), Code::kInvalidArgument) << version;
    EXPECT_FALSE(reader.take().has_value());
  }
}

TEST(MessageReader, APromisedLengthTakesNoMemory) {
  MessageReader reader(1ULL << 31);
  ASSERT_TRUE(reader.feed(message(0, 1, (1LL << 31) - 1, "little"), {}).is_ok());
  EXPECT_LT(reader.buffered_bytes(), 100U);
  EXPECT_FALSE(reader.take().has_value());
}

TEST(MessageReader, ADescriptorFollowsTheMessageThatAnnouncesIt) {
  auto pair = os::socket_pair(os::SocketKind::kStream).take();
  auto passed = os::socket_pair(os::SocketKind::kStream).take();
  MessageReader reader(kLimit);
  const auto announcement = message(0, 23, 0, "");
  ASSERT_TRUE(os::send_some(pair.first.get(), announcement).is_ok());
  ASSERT_TRUE(*reader.read(pair.second.get()));
  ASSERT_TRUE(reader.take().has_value());
  ASSERT_TRUE(reader.expect_descriptor().is_ok());
  EXPECT_FALSE(reader.take_descriptor().has_value());
  const std::uint8_t byte = 0;
  const int descriptor = passed.first.get();
  ASSERT_TRUE(os::send_some(pair.first.get(), std::span(&byte, 1), std::span(&descriptor, 1)).is_ok());
  ASSERT_TRUE(os::send_some(pair.first.get(), message(0, 17, 2, "ab")).is_ok());
  ASSERT_TRUE(*reader.read(pair.second.get()));
  auto received = reader.take_descriptor();
  while (!received) {
    ASSERT_TRUE(*reader.read(pair.second.get()));
    received = reader.take_descriptor();
  }
  EXPECT_TRUE(received->valid());
  auto next = reader.take();
  while (!next) {
    ASSERT_TRUE(*reader.read(pair.second.get()));
    next = reader.take();
  }
  EXPECT_EQ(text_of(*next), "ab");
}

TEST(MessageReader, ADescriptorThatDoesNotComeIsAnError) {
  const auto announcement = message(0, 23, 0, "");
  auto with_more = announcement;
  with_more.push_back(0);
  MessageReader at_once(kLimit);
  ASSERT_TRUE(at_once.feed(with_more, {}).is_ok());
  ASSERT_TRUE(at_once.take().has_value());
  EXPECT_EQ(at_once.expect_descriptor().code(), Code::kInvalidArgument);
  MessageReader later(kLimit);
  ASSERT_TRUE(later.feed(announcement, {}).is_ok());
  ASSERT_TRUE(later.take().has_value());
  ASSERT_TRUE(later.expect_descriptor().is_ok());
  EXPECT_EQ(later.feed(std::span(with_more).last(1), {}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace entrepot::plasma
