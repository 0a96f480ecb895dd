// Frames through rings in shared memory: in order, around the end, full, from a hostile peer, and between two threads
// that sleep.
#include "net/frame_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "os/mapping.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

using Bytes = std::vector<std::uint8_t>;

FrameHeader header_of(std::uint64_t request, std::size_t body_bytes) {
  return {kFrameMagic, MessageType::kSeal, 0, static_cast<std::uint32_t>(body_bytes), 0, request};
}

Bytes body_of(std::uint64_t request, std::size_t bytes) {
  Bytes body(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    body[i] = static_cast<std::uint8_t>(request * 31 + i * 7);
  return body;
}

// Requests from a client to a daemon; each has a mapping of its own.
struct FrameRing : ::testing::Test {
  FrameRing() {
    auto created = FrameRings::create().take();
    fd = std::move(created.fd);
    daemon = std::move(created.rings);
    client = FrameRings::attach(fd).take();
    memory = os::Mapping::map(fd.get(), 0, FrameRings::bytes(), os::Access::kReadWrite).take();
  }
  bool push(std::uint64_t request, std::size_t bytes) {
    return client->request_producer.push(header_of(request, bytes), body_of(request, bytes));
  }
  std::vector<Frame> pop(std::size_t max_frames = SIZE_MAX) {
    std::vector<Frame> frames;
    EXPECT_TRUE(daemon->request_consumer.pop(frames, max_frames).is_ok());
    return frames;
  }
  // The requests' state and data, to damage them.
  [[nodiscard]] RingState& state() const { return *reinterpret_cast<RingState*>(memory.data()); }
  [[nodiscard]] std::byte* data() const { return memory.data() + 4096; }

  UniqueFd fd;
  std::unique_ptr<FrameRings> daemon;
  std::unique_ptr<FrameRings> client;
  os::Mapping memory;
};

TEST_F(FrameRing, FramesComeWholeAndInOrderAroundTheEnd) {
  std::mt19937 random(1);
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  std::vector<std::size_t> sizes;
  bool was_full = false;
  for (int round = 0; round < 2000; ++round) {
    while (random() % 4 != 0) {
      const std::size_t size = random() % 5 == 0 ? random() % (kMaxRingBodyBytes + 1) : random() % 100;
      if (!push(pushed, size)) {
        was_full = true;
        break;
      }
      sizes.push_back(size);
      ++pushed;
    }
    for (const Frame& frame : pop(1 + random() % 8)) {
      ASSERT_EQ(frame.header.request, popped);
      ASSERT_EQ(frame.header.type, MessageType::kSeal);
      ASSERT_EQ(frame.body, body_of(popped, sizes[popped]));
      ++popped;
    }
  }
  EXPECT_TRUE(was_full);
  EXPECT_GT(popped, 1500U);
  while (popped < pushed)
    popped += pop().size();
  EXPECT_FALSE(daemon->request_consumer.has_frames());
}

TEST_F(FrameRing, TheTwoDirectionsAreIndependent) {
  EXPECT_TRUE(push(1, 10));
  EXPECT_TRUE(daemon->response_producer.push(header_of(2, 20), body_of(2, 20)));
  std::vector<Frame> responses;
  ASSERT_TRUE(client->response_consumer.pop(responses, SIZE_MAX).is_ok());
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(responses[0].body, body_of(2, 20));
  ASSERT_EQ(pop().size(), 1U);
}

TEST_F(FrameRing, WhatDoesNotFitIsForTheSocket) {
  EXPECT_TRUE(push(1, kMaxRingBodyBytes));
  EXPECT_FALSE(push(2, kMaxRingBodyBytes + 1));
  FrameHeader with_descriptor = header_of(3, 0);
  with_descriptor.fd_count = 1;
  EXPECT_FALSE(client->request_producer.push(with_descriptor, {}));
  std::uint64_t more = 0;
  while (push(4, 1000))
    ++more;
  EXPECT_GT(more, 8U);
  EXPECT_EQ(pop().size(), more + 1);
  EXPECT_TRUE(push(5, 1000)) << "there is room again";
}

TEST_F(FrameRing, TheProducerWakesASleepingConsumerOnce) {
  ASSERT_TRUE(push(1, 0));
  EXPECT_TRUE(client->request_producer.wake()) << "at first, the consumer does not poll";
  ASSERT_TRUE(push(2, 0));
  EXPECT_FALSE(client->request_producer.wake()) << "it is being woken";
  daemon->request_consumer.wake_up();
  EXPECT_FALSE(daemon->request_consumer.sleep()) << "there are frames";
  EXPECT_EQ(pop().size(), 2U);
  ASSERT_TRUE(push(3, 0));
  EXPECT_FALSE(client->request_producer.wake()) << "it polls";
  EXPECT_EQ(pop().size(), 1U);
  EXPECT_TRUE(daemon->request_consumer.sleep());
  ASSERT_TRUE(push(4, 0));
  EXPECT_TRUE(client->request_producer.wake());
}

TEST_F(FrameRing, ABlockedConsumerReturnsWithTheFrame) {
  EXPECT_FALSE(client->response_consumer.block(1)) << "nothing arrives";
  ASSERT_TRUE(daemon->response_producer.push(header_of(1, 0), {}));
  EXPECT_FALSE(daemon->response_producer.wake()) << "it polls again";
  EXPECT_TRUE(client->response_consumer.block(999'999'999)) << "it has a frame, and must not wait";
  std::vector<Frame> frames;
  ASSERT_TRUE(client->response_consumer.pop(frames, SIZE_MAX).is_ok());

  std::thread producer([&] {
    ASSERT_TRUE(daemon->response_producer.push(header_of(2, 0), {}));
    EXPECT_FALSE(daemon->response_producer.wake()) << "the socket is not needed";
  });
  while (!client->response_consumer.block(999'999'999)) {
  }
  producer.join();
  ASSERT_TRUE(client->response_consumer.pop(frames, SIZE_MAX).is_ok());
  EXPECT_EQ(frames.size(), 2U);
}

TEST_F(FrameRing, TheConsumerRefusesWhatIsNoFrame) {
  const auto refused = [&](auto damage) {
    auto created = FrameRings::create().take();
    fd = std::move(created.fd);
    daemon = std::move(created.rings);
    client = FrameRings::attach(fd).take();
    memory = os::Mapping::map(fd.get(), 0, FrameRings::bytes(), os::Access::kReadWrite).take();
    EXPECT_TRUE(push(1, 16));
    EXPECT_EQ(pop().size(), 1U);
    EXPECT_TRUE(push(2, 16));
    damage();
    EXPECT_TRUE(daemon->request_consumer.has_frames());
    std::vector<Frame> frames;
    const Status status = daemon->request_consumer.pop(frames, SIZE_MAX);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    return frames.size();
  };
  const std::uint64_t second = 40;  // where the second frame is
  const auto header = [&](auto change) {
    return [this, change] {
      FrameHeader damaged;
      std::memcpy(&damaged, data() + second, sizeof(damaged));
      change(damaged);
      std::memcpy(data() + second, &damaged, sizeof(damaged));
    };
  };
  EXPECT_EQ(refused([&] { state().written = second + kRingBytes + 8; }), 0U);
  EXPECT_EQ(refused([&] { state().written = 8; }), 0U) << "less than what was read";
  EXPECT_EQ(refused([&] { state().written = second + 16; }), 0U) << "half a header";
  EXPECT_EQ(refused([&] { state().written = second + 80 + 8; }), 1U) << "the frame before it is whole";
  EXPECT_EQ(refused(header([](FrameHeader& damaged) { damaged.magic = 7; })), 0U);
  EXPECT_EQ(refused(header([](FrameHeader& damaged) { damaged.body_bytes = 4000; })), 0U);
  EXPECT_EQ(refused(header([](FrameHeader& damaged) { damaged.body_bytes = UINT32_MAX; })), 0U);
  EXPECT_EQ(refused(header([](FrameHeader& damaged) { damaged.fd_count = 1; })), 0U);
}

TEST_F(FrameRing, TheProducerStaysInsideWhateverTheConsumerClaims) {
  for (const std::uint64_t claimed : {std::uint64_t{8}, kRingBytes, std::uint64_t{1} << 40}) {
    state().read = claimed;  // more than was ever written
    EXPECT_FALSE(push(1, 100)) << claimed;
  }
}

TEST_F(FrameRing, OtherMemoryIsRefused) {
  const UniqueFd other = os::create_memfd("other", FrameRings::bytes() / 2).take();
  EXPECT_EQ(FrameRings::attach(other).code(), Code::kInvalidArgument);
  EXPECT_TRUE(FrameRings::attach(fd).is_ok());
}

// A doorbell as the socket is one: rings are kept until they are heard.
class Doorbell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rings_ += 1;
    changed_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return rings_ > 0; });
    rings_ = 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int rings_ = 0;  // guarded by mutex_
};

// Each frame waits for its answer, so a wake-up from sleep that is lost ends this test by its timeout, and one from
// block() counts as a timeout.
TEST_F(FrameRing, NoWakeUpIsLost) {
  constexpr std::uint64_t kFrames = 20'000;
  constexpr std::uint32_t kBlockNs = 999'999'999;
  Doorbell to_daemon;
  Doorbell to_client;
  std::atomic<int> timeouts = 0;
  const auto next = [&](RingConsumer& ring, Doorbell& bell, std::uint64_t spins) {
    std::vector<Frame> frames;
    while (frames.empty()) {
      for (std::uint64_t i = 0; i < spins && !ring.has_frames(); ++i) {
      }
      if (spins % 2 == 0) {
        const std::uint64_t began_ns = os::monotonic_ns();
        if (!ring.has_frames() && !ring.block(kBlockNs) && os::monotonic_ns() - began_ns >= kBlockNs) ++timeouts;
      } else if (!ring.has_frames() && ring.sleep()) {
        bell.wait();
      }
      ring.wake_up();
      EXPECT_TRUE(ring.pop(frames, 1).is_ok());
    }
    return frames[0].header.request;
  };
  std::thread server([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const std::uint64_t request = next(daemon->request_consumer, to_daemon, i % 200);
      ASSERT_TRUE(daemon->response_producer.push(header_of(request, 8), body_of(request, 8)));
      if (daemon->response_producer.wake()) to_client.ring();
    }
  });
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(push(i, i % 64));
    if (client->request_producer.wake()) to_daemon.ring();
    ASSERT_EQ(next(client->response_consumer, to_client, i * 7 % 300), i);
  }
  server.join();
  EXPECT_LT(timeouts, 3) << "of threads that did not run for a second";
}

}  // namespace
}  // namespace entrepot
