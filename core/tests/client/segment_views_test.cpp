// Mappings of segments against a minimal fake daemon, whose answers may be wrong.
#include "client/segment_views.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "os/memfd.h"
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
  const auto first = views.get(5, 1, 0, {});
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  EXPECT_EQ((*first)->mapping.bytes(), kViewedBytes);
  EXPECT_EQ(views.get(5, 1, 0, {}).take(), *first);
  EXPECT_EQ(daemon.calls, 1);
  daemon.answer.segment_generation = 2;
  const auto second = views.get(5, 2, 0, {});
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_NE((*second)->mapping.data(), (*first)->mapping.data());
  EXPECT_EQ(daemon.calls, 2);
}

TEST(SegmentViews, AnotherGenerationIsNotMappedInItsPlace) {
  FakeSegments daemon;
  SegmentViews views(daemon);
  const auto view = views.get(5, 2, 0, {});
  EXPECT_EQ(view.code(), Code::kObjectLost);
  EXPECT_NE(view.status().message().find("has generation 1, but the object is in generation 2"), std::string::npos)
      << view.status().to_string();
}

TEST(SegmentViews, AnAnswerAboutAnotherSegmentOrWithoutADescriptorIsRefused) {
  FakeSegments daemon;
  SegmentViews views(daemon);
  daemon.answer.segment = 6;
  EXPECT_EQ(views.get(5, 1, 0, {}).code(), Code::kInternal);
  daemon.answer.segment = 5;
  for (const int descriptors : {0, 2}) {
    daemon.descriptors = descriptors;
    EXPECT_EQ(views.get(5, 1, 0, {}).code(), Code::kInternal) << descriptors;
  }
}

}  // namespace
}  // namespace entrepot
