// Every message survives a round trip; damaged or malicious bodies are rejected without allocating memory.
#include "net/protocol.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <type_traits>

namespace entrepot {
namespace {

// Every body that a daemon or client decodes.
template <class Visit>
void for_each_message(Visit&& visit) {
  visit(ErrorBody{});
  visit(Hello{});
  visit(HelloReply{});
  visit(LeaseRequest{});
  visit(LeaseReply{});
  visit(UnleaseRequest{});
  visit(ReserveRequest{});
  visit(ReservationRequest{});
  visit(ReservationReply{});
  visit(SegmentRequest{});
  visit(SegmentReply{});
  visit(SealRequest{});
  visit(SealReply{});
  visit(LookupRequest{});
  visit(LookupReply{});
  visit(DeleteRequest{});
  visit(DeleteReply{});
  visit(ObjectGeneration{});
  visit(DeleteGenerationsRequest{});
  visit(OpenSessionRequest{});
  visit(OpenSessionReply{});
  visit(RemoveSessionRequest{});
  visit(RemoveUnusedRequest{});
  visit(RemoveUnusedReply{});
  visit(NameRequest{});
  visit(NameReply{});
  visit(ListRequest{});
  visit(InfoRequest{});
  visit(JsonReply{});
  visit(WaitRequest{});
  visit(ForkReply{});
  visit(OpenStreamRequest{});
  visit(OpenStreamReply{});
  visit(RemoveStreamRequest{});
  visit(StreamStateRequest{});
  visit(StreamStateReply{});
  visit(OpenStreamWriterRequest{});
  visit(OpenStreamWriterReply{});
  visit(CloseStreamWriterRequest{});
  visit(AppendChunkRequest{});
  visit(AppendChunkReply{});
  visit(WithdrawChunkRequest{});
  visit(WithdrawChunkReply{});
  visit(OpenStreamReaderRequest{});
  visit(OpenStreamReaderReply{});
  visit(CloseStreamReaderRequest{});
  visit(NextChunkRequest{});
  visit(NextChunkReply{});
  visit(ChunkDoneRequest{});
  visit(PutChunkRequest{});
  visit(ServeGatewayRequest{});
  visit(CallGatewayRequest{});
  visit(CallGatewayReply{});
  visit(NextCallsRequest{});
  visit(GatewayCall{});
  visit(NextCallsReply{});
  visit(AnswerCallRequest{});
  visit(Empty{});
}

// How many bytes of a message an earlier version does not send.
template <class Message>
std::size_t appended_bytes(const Message& message) {
  (void)message;
  constexpr bool has_capacity_bytes =
      std::is_same_v<Message, OpenStreamRequest> || std::is_same_v<Message, OpenStreamReply>;
  constexpr bool has_deadline = std::is_same_v<Message, AppendChunkRequest> || std::is_same_v<Message, PutChunkRequest>;
  return has_capacity_bytes || has_deadline ? sizeof(std::uint64_t) : 0;
}

TEST(Protocol, SealComesBackAsItWas) {
  SealObject object;
  object.id[3] = 9;
  object.session = 5;
  object.replace = 1;
  object.blobs = {{1, 64, 128}, {2, 0, 4096}};
  object.buffers = {{kNewBlob | 1, 0, 5, 6}, {7, 8, 9, 10}, {kInlineBlob, 0, 0, 3}};
  object.tree = std::string("tr\0ee", 5);
  object.payload = "abc";
  object.name = "orders";
  SealRequest back;
  ASSERT_TRUE(from_wire(to_wire(SealRequest{{object, object}}), back));
  ASSERT_EQ(back.objects.size(), 2U);
  EXPECT_EQ(to_wire(back), to_wire(SealRequest{{object, object}}));
  EXPECT_EQ(back.objects[1].buffers[1].length, 10U);
  EXPECT_EQ(back.objects[0].tree.size(), 5U);
}

TEST(Protocol, EveryBodyRefusesToBeShorterThanItIs) {
  for_each_message([](auto message) {
    const auto bytes = to_wire(message);
    const std::size_t appended = appended_bytes(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      decltype(message) out;
      const bool is_earlier = appended > 0 && size == bytes.size() - appended;
      EXPECT_EQ(from_wire(std::span(bytes).first(size), out), is_earlier) << size;
    }
    decltype(message) out;
    EXPECT_TRUE(from_wire(bytes, out));
    auto longer = bytes;
    longer.push_back(0);  // as sent by a newer minor version
    EXPECT_TRUE(from_wire(longer, out));
  });
}

TEST(Protocol, ClaimedCountsReserveNothing) {
  std::vector<std::uint8_t> bytes(1U << 20, 0xff);  // claims 4294967295 objects
  SealRequest seal;
  EXPECT_FALSE(from_wire(bytes, seal));
  const std::uint32_t count = (1U << 20) - 4;
  std::memcpy(bytes.data(), &count, sizeof(count));
  EXPECT_FALSE(from_wire(bytes, seal));
  EXPECT_LE(seal.objects.capacity() * sizeof(SealObject), 2U << 20);
}

TEST(Protocol, RandomBodiesAreRejectedOrReadAsWhatTheyWouldBeWrittenAs) {
  std::mt19937 random(3);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 200);
    for (auto& byte : bytes)
      byte = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : 0);
    for_each_message([&](auto message) {
      if (!from_wire(bytes, message)) return;
      const std::vector<std::uint8_t> written = to_wire(message);
      decltype(message) again{};
      EXPECT_TRUE(from_wire(written, again));
      EXPECT_EQ(to_wire(again), written);
      ++accepted;
    });
  }
  EXPECT_GT(accepted, 1000) << "or it shows nothing";
}

}  // namespace
}  // namespace entrepot
