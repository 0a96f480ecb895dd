// FrameReader: returns the same frames however the stream is split, and holds no memory between frames.
#include "net/frame_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "net/frame_socket.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes body_of(std::size_t size) {
  Bytes body(size);
  for (std::size_t i = 0; i < size; ++i)
    body[i] = static_cast<std::uint8_t>(i * 7 + size);
  return body;
}

// A stream of frames with these body sizes, numbered from 0.
Bytes stream_of(const std::vector<std::size_t>& sizes) {
  Bytes stream;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Bytes frame = frame_bytes(MessageType::kStatus, i, body_of(sizes[i]), 0);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  return stream;
}

struct Reader : ::testing::Test {
  Reader() {
    auto made = os::socket_pair(os::SocketKind::kStream);
    EXPECT_TRUE(made.is_ok());
    EXPECT_TRUE(os::set_nonblocking(made->first.get(), true).is_ok());
    ours = std::move(made->first);
    theirs = std::move(made->second);
  }
  void write(std::span<const std::uint8_t> bytes, std::span<const int> fds = {}) {
    ASSERT_TRUE(os::send_all(theirs.get(), bytes, fds, os::Deadline::after_ms(5000)).is_ok());
  }
  // Reads whatever is waiting in the socket.
  void read_all(std::size_t most = SIZE_MAX) {
    for (int reads = 0; reads < 10'000; ++reads) {
      const std::size_t before = frames.size();
      const auto read = reader.read(ours.get(), frames, most == SIZE_MAX ? most : before + most);
      ASSERT_TRUE(read.is_ok()) << read.status().to_string();
      ASSERT_FALSE(read->closed);
      if (read->drained && !read->more && frames.size() == before) return;
    }
    FAIL() << "it never says that the socket is empty";
  }
  void expect_frames(const std::vector<std::size_t>& sizes) {
    ASSERT_EQ(frames.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(frames[i].header.request, i);
      EXPECT_EQ(frames[i].body, body_of(sizes[i]));
    }
    EXPECT_EQ(reader.buffered_bytes(), 0U);
    EXPECT_FALSE(reader.is_inside());
    frames.clear();
  }

  UniqueFd ours;
  UniqueFd theirs;
  FrameReader reader;
  std::vector<Frame> frames;
};

TEST_F(Reader, GivesTheSameFramesWhereverTheStreamIsCutTwice) {
  const std::vector<std::size_t> sizes = {3, 0, 0, 17, 1};
  const Bytes stream = stream_of(sizes);
  const std::span all(stream);
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    for (std::size_t second = first; second <= stream.size(); ++second) {
      write(all.first(first));
      read_all();
      write(all.subspan(first, second - first));
      read_all();
      write(all.subspan(second));
      read_all();
      expect_frames(sizes);
      ASSERT_FALSE(HasFailure()) << first << ", " << second;
    }
  }
}

TEST_F(Reader, GivesTheSameFramesByteByByte) {
  const std::vector<std::size_t> sizes = {100, 0, 5};
  const Bytes stream = stream_of(sizes);
  for (const std::uint8_t& byte : stream) {
    write({&byte, 1});
    read_all();
  }
  expect_frames(sizes);
}

TEST_F(Reader, GivesTheSameFramesAroundTheSizeOfARead) {
  for (std::size_t around = FrameReader::kReadBytes - 30; around <= FrameReader::kReadBytes + 30; ++around) {
    for (const std::size_t part : {std::size_t{1}, FrameReader::kReadBytes - 1, FrameReader::kReadBytes}) {
      const std::vector<std::size_t> sizes = {around - sizeof(FrameHeader), 4, 2 * around, 0};
      const Bytes stream = stream_of(sizes);
      const std::span all(stream);
      write(all.first(part));
      read_all();
      write(all.subspan(part));
      read_all();
      expect_frames(sizes);
      ASSERT_FALSE(HasFailure()) << around << ", " << part;
    }
  }
}

TEST_F(Reader, GivesTheSameFramesInRandomPieces) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 6; ++i)
      sizes.push_back(random() % (random() % 4 == 0 ? 300'000U : 500U));
    const Bytes stream = stream_of(sizes);
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random() % 60'000, stream.size() - at);
      write(std::span(stream).subspan(at, piece));
      read_all(1 + random() % 3);
      at += piece;
    }
    expect_frames(sizes);
    ASSERT_FALSE(HasFailure()) << round;
  }
}

TEST_F(Reader, HoldsWhatCameAndNotWhatIsAnnounced) {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.type = MessageType::kStatus;
  header.body_bytes = kMaxBodyBytes;
  write({reinterpret_cast<const std::uint8_t*>(&header), sizeof(header)});
  read_all();
  EXPECT_TRUE(reader.is_inside());
  EXPECT_LE(reader.buffered_bytes(), FrameReader::kReadBytes);
  write(Bytes(100'000));
  read_all();
  EXPECT_GE(reader.buffered_bytes(), 100'000U);
  EXPECT_LE(reader.buffered_bytes(), 2 * (100'000U + FrameReader::kReadBytes));
}

TEST_F(Reader, MoreThanOneCallTakesWaitsForTheNext) {
  write(stream_of({0, 1, 2, 3, 4}));
  for (std::size_t most = 2; most <= 6; most += 2) {
    const auto read = reader.read(ours.get(), frames, most);
    ASSERT_TRUE(read.is_ok());
    EXPECT_EQ(read->more, most < 5);
    EXPECT_EQ(frames.size(), std::min<std::size_t>(most, 5));
  }
  read_all();
  expect_frames({0, 1, 2, 3, 4});
}

TEST_F(Reader, DescriptorsGoToTheirFrameWhereverItIsCut) {
  auto memfd = os::create_memfd("test", 4096);
  ASSERT_TRUE(memfd.is_ok());
  const Bytes frame = frame_bytes(MessageType::kHello, 0, body_of(20), 2);
  const std::vector<int> fds(2, memfd->get());
  for (std::size_t cut = 1; cut < frame.size(); ++cut) {
    write(std::span(frame).first(cut), fds);
    read_all();
    ASSERT_TRUE(frames.empty());
    write(std::span(frame).subspan(cut));
    read_all();
    ASSERT_EQ(frames.size(), 1U);
    ASSERT_EQ(frames[0].fds.size(), 2U);
    EXPECT_EQ(*os::file_bytes(frames[0].fds[1].get()), 4096U);
    frames.clear();
  }
}

TEST_F(Reader, FramesBeforeTheGarbageAreGiven) {
  write(stream_of({1, 2}));
  write(Bytes(sizeof(FrameHeader), 0x55));
  while (true) {
    const auto read = reader.read(ours.get(), frames);
    if (!read.is_ok()) {
      EXPECT_EQ(read.code(), Code::kInvalidArgument);
      break;
    }
    ASSERT_FALSE(read->drained && read->closed);
  }
  EXPECT_EQ(frames.size(), 2U);
}

}  // namespace
}  // namespace entrepot
