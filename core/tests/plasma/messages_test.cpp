// Requests of Plasma clients: decoded if they are whole, refused if anything about them is wrong.
#include "plasma/messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "plasma/plasma_generated.h"
#include "plasma/replies.h"

namespace entrepot::plasma {
namespace {

const std::string kId(20, 'i');

std::vector<std::uint8_t> bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

std::vector<std::uint8_t> create_message(const std::string& id) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(wire::CreateCreateRequest(builder, builder.CreateString(id), true, 100, 7, 0));
  return bytes_of(builder);
}

std::vector<std::uint8_t> batch_message(std::size_t ids, std::size_t data) {
  flatbuffers::FlatBufferBuilder builder;
  const auto id_vector = builder.CreateVectorOfStrings(std::vector<std::string>(ids, kId));
  const auto data_vector = builder.CreateVectorOfStrings(std::vector<std::string>(data, "data"));
  const auto metadata_vector = builder.CreateVectorOfStrings(std::vector<std::string>(ids, ""));
  const auto digests = builder.CreateVectorOfStrings(std::vector<std::string>(ids, "12345678"));
  builder.Finish(
      wire::CreateCreateAndSealBatchRequest(builder, id_vector, true, data_vector, metadata_vector, digests));
  return bytes_of(builder);
}

TEST(Messages, ACreateRequestIsRead) {
  const auto request = decode_create(create_message(kId));
  ASSERT_TRUE(request.is_ok()) << request.status().to_string();
  EXPECT_EQ(std::string(request->id.begin(), request->id.end()), kId);
  EXPECT_TRUE(request->evict_if_full);
  EXPECT_EQ(request->data_bytes, 100U);
  EXPECT_EQ(request->metadata_bytes, 7U);
}

// What the stock client sends: evict_if_full is the second field, and a device of 0 is left out.
TEST(Messages, EvictIfFullIsTheSecondFieldOfBothCreateRequests) {
  EXPECT_EQ(wire::CreateRequest::VT_EVICT_IF_FULL, 6);
  EXPECT_EQ(wire::CreateAndSealRequest::VT_EVICT_IF_FULL, 6);
  EXPECT_EQ(wire::CreateRequest::VT_DEVICE, 12);
  EXPECT_EQ(sizeof(wire::Place), 48U);
}

TEST(Messages, AnIdHasTwentyBytes) {
  for (const std::size_t length : {0U, 1U, 19U, 21U, 4000U}) {
    const auto request = decode_create(create_message(std::string(length, 'i')));
    EXPECT_EQ(request.code(), Code::kInvalidArgument) << length;
  }
}

TEST(Messages, ABatchHasAsManyValuesAsIds) {
  EXPECT_TRUE(decode_create_and_seal_batch(batch_message(3, 3)).is_ok());
  EXPECT_EQ(decode_create_and_seal_batch(batch_message(3, 2)).code(), Code::kInvalidArgument);
}

TEST(Messages, AMessageThatIsCutOffAnywhereIsRefused) {
  const std::vector<std::uint8_t> whole = create_message(kId);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::uint8_t> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const auto request = decode_create(part);
    EXPECT_FALSE(request.is_ok() && request->data_bytes != 100) << length;
  }
  EXPECT_FALSE(decode_create({}).is_ok());
}

TEST(Messages, AnyDamagedByteIsSurvived) {
  const std::vector<std::function<void(Body)>> decoders = {
      [](Body body) { static_cast<void>(decode_create(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_create_and_seal(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_create_and_seal_batch(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_seal(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_get(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_delete(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_evict(body).is_ok()); },
      [](Body body) { static_cast<void>(decode_set_options(body).is_ok()); },
  };
  for (std::vector<std::uint8_t> message : {create_message(kId), batch_message(2, 2)}) {
    for (std::uint8_t& byte : message) {
      const std::uint8_t before = byte;
      for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
        byte = static_cast<std::uint8_t>(value);
        for (const auto& decode : decoders)
          decode(message);
      }
      byte = before;
    }
  }
}

TEST(Replies, AGetNamesEachSegmentOnceAndWhatIsNotThere) {
  const IdBytes id{1};
  const std::vector<IdBytes> ids{id, id, id};
  const std::vector<ObjectPlace> places{{3, 4096, 64, 10, 5}, {}, {3, 4096, 128, 1, 0}};
  const Bytes reply = get_reply(ids, places);
  const Header header = parse_header(reply);
  EXPECT_EQ(header.type, MessageType::kGetReply);
  ASSERT_EQ(reply.size(), kHeaderBytes + static_cast<std::size_t>(header.length));
  const std::vector<std::uint8_t> body(reply.begin() + kHeaderBytes, reply.end());
  const auto* const root = flatbuffers::GetRoot<wire::GetReply>(body.data());
  ASSERT_EQ(root->places()->size(), 3U);
  EXPECT_EQ(root->places()->Get(0)->metadata_offset(), 74U);
  EXPECT_EQ(root->places()->Get(1)->data_size(), UINT64_MAX);
  ASSERT_EQ(root->segments()->size(), 1U);
  EXPECT_EQ(root->segments()->Get(0), 3);
  EXPECT_EQ(root->segment_bytes()->Get(0), 4096);
}

}  // namespace
}  // namespace entrepot::plasma
