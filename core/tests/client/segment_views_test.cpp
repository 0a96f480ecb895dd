// Mappings of segments against a minimal fake daemon, whose answers may be wrong.
#include "client/segment_views.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/connection.h"
#include "net/frame_socket.h"
#include "os/events.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "shm/layout.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kViewedBytes = 2U << 20;

class FakeSegments : public Rpc {
 public:
  Result<Frame> call(MessageType type, std::span<const std::uint8_t>, const CallOptions&) override {
    EXPECT_EQ(type, MessageType::kSegment);
    ++calls;
    Frame frame;
    frame.body = to_wire(answer);
    for (int i = 0; i < descriptors; ++i)
      frame.fds.push_back(os::duplicate(fd_.get()).take());
    return frame;
  }
  void post(MessageType) override {}
  std::shared_ptr<Connection> current_connection() override { return nullptr; }
  Status wait_reconnected(const std::shared_ptr<Connection>&, const Interrupt&) override { return Status::ok(); }

  SegmentReply answer{5, 1, kViewedBytes};
  int descriptors = 1;
  int calls = 0;

 private:
  UniqueFd fd_ = os::create_memfd("fake", kViewedBytes).take();
};

TEST(SegmentViews, EachGenerationIsMappedOnce) {
  FakeSegments daemon;
  SegmentViews views(daemon);
  const auto first = views.get({5, 1}, 0, {});
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  EXPECT_EQ((*first)->mapping.bytes(), kViewedBytes);
  EXPECT_EQ(views.get({5, 1}, 0, {}).take(), *first);
  EXPECT_EQ(daemon.calls, 1);
  daemon.answer.segment_generation = 2;
  const auto second = views.get({5, 2}, 0, {});
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_NE((*second)->mapping.data(), (*first)->mapping.data());
  EXPECT_EQ(daemon.calls, 2);
}

TEST(SegmentViews, AnotherGenerationIsNotMappedInItsPlace) {
  FakeSegments daemon;
  SegmentViews views(daemon);
  const auto view = views.get({5, 2}, 0, {});
  EXPECT_EQ(view.code(), Code::kObjectLost);
  EXPECT_NE(view.status().message().find("has generation 1, but the object is in generation 2"), std::string::npos)
      << view.status().to_string();
}

TEST(SegmentViews, AnAnswerAboutAnotherSegmentOrWithoutADescriptorIsRefused) {
  FakeSegments daemon;
  SegmentViews views(daemon);
  daemon.answer.segment = 6;
  EXPECT_EQ(views.get({5, 1}, 0, {}).code(), Code::kInternal);
  daemon.answer.segment = 5;
  for (const int descriptors : {0, 2}) {
    daemon.descriptors = descriptors;
    EXPECT_EQ(views.get({5, 1}, 0, {}).code(), Code::kInternal) << descriptors;
  }
}

// Counted from each use: the tests before these take seconds under sanitizers.
os::Deadline in_time() { return os::Deadline::after_ms(20'000); }

// A daemon in a thread, behind a real connection. It has every segment, in generation 1, and waits for as many requests
// as it is told before it answers the first.
class MappedTogether : public ::testing::Test, public Rpc {
 protected:
  MappedTogether() {
    auto pair = os::socket_pair(os::SocketKind::kStream).take();
    connection = std::make_shared<Connection>(std::move(pair.first));
    peer = std::move(pair.second);
  }
  ~MappedTogether() override {
    connection->close(Status(Code::kStoreUnavailable, "the test is over"));
    if (daemon.joinable()) daemon.join();
  }

  Result<Frame> call(MessageType type, std::span<const std::uint8_t> body, const CallOptions& options) override {
    return connection->call(type, body, {}, options.deadline, options.interrupt);
  }
  void post(MessageType) override {}
  std::shared_ptr<Connection> current_connection() override { return connection; }
  Status wait_reconnected(const std::shared_ptr<Connection>&, const Interrupt&) override { return Status::ok(); }

  // Answers the requests of `batches`, each once all of it has come; `answer` says how.
  using Answer = std::function<void(std::uint64_t request, const SegmentRequest& body)>;
  void serve(std::vector<int> batches, Answer answer) {
    daemon = std::thread([this, batches = std::move(batches), answer = std::move(answer)] {
      for (const int requests : batches) {
        std::vector<std::pair<std::uint64_t, SegmentRequest>> asked;
        for (int i = 0; i < requests; ++i)
          asked.push_back(take());
        for (const auto& [request, body] : asked)
          answer(request, body);
      }
    });
  }
  void serve(std::vector<int> batches) {
    serve(std::move(batches), [this](std::uint64_t request, const SegmentRequest& body) { give(request, body); });
  }

  std::pair<std::uint64_t, SegmentRequest> take() {
    FrameHeader header{};
    std::vector<UniqueFd> fds;
    EXPECT_TRUE(os::receive_all(peer.get(), {reinterpret_cast<std::uint8_t*>(&header), sizeof(header)}, fds, in_time())
                    .is_ok());
    EXPECT_EQ(header.type, MessageType::kSegment);
    std::vector<std::uint8_t> bytes(header.body_bytes);
    EXPECT_TRUE(os::receive_all(peer.get(), bytes, fds, in_time()).is_ok());
    SegmentRequest body;
    EXPECT_TRUE(from_wire(bytes, body));
    return {header.request, body};
  }
  void give(std::uint64_t request, const SegmentRequest& body, std::uint32_t generation = 1) {
    const auto bytes =
        frame_bytes(MessageType::kReply, request, to_wire(SegmentReply{body.segment, generation, kViewedBytes}), 1);
    const int fd = memory.get();
    ASSERT_TRUE(os::send_all(peer.get(), bytes, {&fd, 1}, in_time()).is_ok());
  }
  void refuse(std::uint64_t request) {
    ErrorBody error;
    error.code = Code::kInvalidArgument;
    error.message = "there is no such segment";
    ASSERT_TRUE(
        os::send_all(peer.get(), frame_bytes(MessageType::kError, request, to_wire(error), 0), {}, in_time()).is_ok());
  }

  static std::vector<SegmentKey> keys(std::uint32_t count) {
    std::vector<SegmentKey> made;
    for (std::uint32_t segment = 1; segment <= count; ++segment)
      made.push_back({segment, 1});
    return made;
  }
  std::size_t mapped(std::uint32_t count) {
    std::size_t mapped = 0;
    for (const SegmentKey& key : keys(count))
      mapped += views.find(key) ? 1 : 0;
    return mapped;
  }

  std::shared_ptr<Connection> connection;
  UniqueFd peer;
  UniqueFd memory = os::create_memfd("fake", kViewedBytes).take();
  SegmentViews views{*this};
  std::thread daemon;
};

TEST_F(MappedTogether, AllAreRequestedBeforeTheFirstAnswer) {
  serve({5});
  ASSERT_TRUE(views.map_together(keys(5), 0, {}).is_ok());
  EXPECT_EQ(mapped(5), 5U);
  const auto view = views.get({3, 1}, 0, {});  // which the daemon is not there to answer
  ASSERT_TRUE(view.is_ok());
  EXPECT_EQ((*view)->mapping.bytes(), kViewedBytes);
}

TEST_F(MappedTogether, WhatIsMappedOrNamedTwiceIsNotRequested) {
  serve({2, 2});
  ASSERT_TRUE(views.map_together(keys(2), 0, {}).is_ok());
  const std::vector<SegmentKey> more = {{1, 1}, {3, 1}, {3, 1}, {2, 1}, {4, 1}};
  ASSERT_TRUE(views.map_together(more, 0, {}).is_ok());
  EXPECT_EQ(mapped(4), 4U);
  ASSERT_TRUE(views.map_together(more, 0, {}).is_ok());  // nobody answers any more
}

TEST_F(MappedTogether, ASingleOneIsLeftToGet) {
  ASSERT_TRUE(views.map_together(keys(1), 0, {}).is_ok());
  EXPECT_EQ(mapped(1), 0U);
}

TEST_F(MappedTogether, NoMoreThanTheSocketHolds) {
  serve({static_cast<int>(SegmentViews::kMappedTogether)});
  ASSERT_TRUE(views.map_together(keys(40), 0, {}).is_ok());
  EXPECT_EQ(mapped(40), SegmentViews::kMappedTogether);
}

TEST_F(MappedTogether, ASegmentThatIsGoneOrReplacedIsReportedByGet) {
  serve({4, 1, 1}, [this](std::uint64_t request, const SegmentRequest& body) {
    if (body.segment == 2) return refuse(request);
    give(request, body, body.segment == 3 ? 2 : 1);
  });
  ASSERT_TRUE(views.map_together(keys(4), 0, {}).is_ok());
  EXPECT_EQ(mapped(4), 2U);
  EXPECT_EQ(views.get({2, 1}, 0, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(views.get({3, 1}, 0, {}).code(), Code::kObjectLost);
}

TEST_F(MappedTogether, WhatCameBeforeTheDaemonsEndIsMapped) {
  serve({4}, [this, answered = 0](std::uint64_t request, const SegmentRequest& body) mutable {
    if (answered++ < 2) return give(request, body);
    peer.reset();
  });
  ASSERT_TRUE(views.map_together(keys(4), 0, {}).is_ok());
  EXPECT_EQ(mapped(4), 2U);
  EXPECT_TRUE(views.get({2, 1}, 0, {}).is_ok());
  EXPECT_EQ(views.get({3, 1}, 0, {}).code(), Code::kStoreUnavailable);
  ASSERT_TRUE(views.map_together(keys(4), 0, {}).is_ok()) << "the connection is broken, which get() says";
}

// Descriptors of this process: as many as it has, and a few more.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(lowest.get() + more);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  FewDescriptors(FewDescriptors&&) = delete;
  FewDescriptors& operator=(FewDescriptors&&) = delete;

 private:
  rlimit before_{};
};

TEST_F(MappedTogether, WithoutDescriptorsLeftGetReportsItAndLaterSucceeds) {
  serve({4, 1, 1});
  {
    const FewDescriptors few(2);
    ASSERT_TRUE(views.map_together(keys(4), 0, {}).is_ok());
    EXPECT_EQ(mapped(4), 2U);
    const auto refused = views.get({3, 1}, 0, {});
    EXPECT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().message().find("receiving descriptors"), std::string::npos);
  }
  EXPECT_TRUE(views.get({3, 1}, 0, {}).is_ok());
  EXPECT_FALSE(connection->broken());
}

TEST_F(MappedTogether, TheWaitEnds) {
  const Interrupt now{[](void*) { return true; }, nullptr};
  EXPECT_EQ(views.map_together(keys(3), 0, now).code(), Code::kTimeout);
  EXPECT_EQ(views.map_together(keys(3), Wait::until(os::Deadline::after_ms(20)), {}).code(), Code::kTimeout);
  EXPECT_EQ(mapped(3), 0U);
}

TEST_F(MappedTogether, ThreadsShareWhatTheyMap) {
  std::atomic<bool> over = false;
  daemon = std::thread([&] {
    while (!over) {
      const auto ready = os::wait_readable(peer.get(), os::Deadline::after_ms(10));
      if (!ready.is_ok() || !*ready) continue;
      const auto [request, body] = take();
      give(request, body);
    }
  });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (!views.map_together(keys(20), 0, {}).is_ok()) ++wrong;
      for (const SegmentKey& key : keys(20))
        if (!views.get(key, 0, {}).is_ok()) ++wrong;
    });
  }
  for (auto& thread : threads)
    thread.join();
  over = true;
  daemon.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(mapped(20), 20U);
}

}  // namespace
}  // namespace entrepot
