// What a Plasma client sends: any bytes in any pieces give whole messages or an error, and every decoder reads or
// refuses each body.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plasma_wire.h"
#include "plasma/message_reader.h"
#include "plasma/messages.h"
#include "plasma/replies.h"

namespace entrepot::fuzz {
namespace {

constexpr std::uint64_t kMaxBodyBytes = 4096;

// Reads every byte that a decoded request refers to.
std::size_t read_request(const plasma::CreateAndSealRequest& request) {
  std::size_t sum = 0;
  for (const plasma::WholeObject& object : request.objects) {
    for (const std::string_view text : {object.data, object.metadata, object.digest})
      sum += static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x'));
  }
  return sum;
}

void decode_as_all(const Bytes& body) {
  (void)plasma::decode_create(body).is_ok();
  for (auto* const decode : {plasma::decode_create_and_seal, plasma::decode_create_and_seal_batch}) {
    if (const auto request = decode(body); request.is_ok()) (void)read_request(*request);
  }
  (void)plasma::decode_seal(body).is_ok();
  for (auto* const decode : {plasma::decode_abort, plasma::decode_release, plasma::decode_contains})
    (void)decode(body).is_ok();
  for (auto* const decode : {plasma::decode_delete, plasma::decode_refresh_lru}) {
    if (const auto ids = decode(body); ids.is_ok()) (void)plasma::refresh_lru_reply();
  }
  if (const auto request = plasma::decode_get(body); request.is_ok()) {
    const std::vector<plasma::ObjectPlace> places(request->ids.size());
    require(!plasma::get_reply(request->ids, places).empty(), "whatever was asked for can be answered");
  }
  (void)plasma::decode_evict(body).is_ok();
  (void)plasma::decode_set_options(body).is_ok();
}

// Input as a stream of pieces, each with its length in a byte.
void run(FuzzInput input) {
  plasma::MessageReader reader(kMaxBodyBytes);
  while (!input.empty()) {
    const auto piece = input.take(std::size_t{input.byte()} + 1);
    if (!reader.feed(piece, {}).is_ok()) return;
    while (auto message = reader.take()) {
      require(message->body.size() <= kMaxBodyBytes, "no message is longer than the limit");
      decode_as_all(message->body);
      if (message->type == plasma::MessageType::kSubscribeRequest && !reader.expect_descriptor().is_ok()) return;
    }
    require(reader.buffered_bytes() <= kMaxBodyBytes + 2 * 256 + plasma::kHeaderBytes || !reader.take(),
            "what cannot be taken is bounded by a message and a piece");
  }
}

Bytes in_pieces(const Bytes& stream) {
  Bytes input;
  for (std::size_t at = 0; at < stream.size(); at += 100) {
    const std::size_t length = std::min<std::size_t>(100, stream.size() - at);
    input.push_back(static_cast<std::uint8_t>(length - 1));
    append(input, bytes_of(stream.data() + at, length));
  }
  return input;
}

}  // namespace

std::vector<Bytes> seeds() {
  using plasma::MessageType;
  const std::string id(kIdBytes, 'i');
  Bytes stream = plasma_message(MessageType::kCreateRequest, [&](auto& builder) {
    return wire::CreateCreateRequest(builder, builder.CreateString(id), true, 100, 7, 0);
  });
  append(stream, plasma_message(MessageType::kGetRequest, [&](auto& builder) {
           return wire::CreateGetRequest(builder, builder.CreateVectorOfStrings(Strings{id, id}), 50);
         }));
  append(stream, plasma_message(MessageType::kCreateAndSealBatchRequest, [&](auto& builder) {
           const auto ids = builder.CreateVectorOfStrings(Strings{id, id});
           const auto texts = builder.CreateVectorOfStrings(Strings{"data", "more"});
           return wire::CreateCreateAndSealBatchRequest(builder, ids, true, texts, texts, texts);
         }));
  return {in_pieces(stream), in_pieces(Bytes(stream.begin(), stream.begin() + 24))};
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::run(entrepot::fuzz::FuzzInput(data, size));
  return 0;
}
