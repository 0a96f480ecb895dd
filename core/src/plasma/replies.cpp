#include "plasma/replies.h"

#include <algorithm>
#include <cstring>

#include "plasma/plasma_generated.h"

namespace entrepot::plasma {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr std::uint64_t kNotThere = UINT64_MAX;

void append(Bytes& out, std::int64_t number) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&number);
  out.insert(out.end(), bytes, bytes + sizeof number);
}

template <class Table>
Bytes framed(MessageType type, FlatBufferBuilder& builder, Offset<Table> root) {
  builder.Finish(root);
  Bytes out;
  out.reserve(kHeaderBytes + builder.GetSize());
  append(out, kProtocolVersion);
  append(out, static_cast<std::int64_t>(type));
  append(out, builder.GetSize());
  out.insert(out.end(), builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  return out;
}

Offset<flatbuffers::String> text_of(FlatBufferBuilder& builder, const IdBytes& id) {
  return builder.CreateString(reinterpret_cast<const char*>(id.data()), id.size());
}

wire::Error on_wire(Error error) { return static_cast<wire::Error>(error); }

wire::Place on_wire(const ObjectPlace& place) {
  if (place.segment < 0) return {0, 0, kNotThere, 0, 0, 0};
  return {place.segment, place.offset, place.data_bytes, place.offset + place.data_bytes, place.metadata_bytes, 0};
}

Offset<wire::ObjectInfo> on_wire(FlatBufferBuilder& builder, const ObjectDescription& object) {
  return wire::CreateObjectInfo(
      builder, text_of(builder, object.id), static_cast<std::int64_t>(object.data_bytes),
      static_cast<std::int64_t>(object.metadata_bytes), static_cast<std::int32_t>(object.holders),
      static_cast<std::int64_t>(object.created_unix_s), object.construct_s, builder.CreateString(object.digest), false);
}

Bytes notification(FlatBufferBuilder& builder, const std::vector<Offset<wire::ObjectInfo>>& infos) {
  builder.Finish(wire::CreateNotification(builder, builder.CreateVector(infos)));
  Bytes out;
  append(out, builder.GetSize());
  out.insert(out.end(), builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  return out;
}

}  // namespace

Bytes create_reply(const IdBytes& id, const ObjectPlace& place, Error error) {
  FlatBufferBuilder builder;
  const auto text = text_of(builder, id);
  const bool is_there = error == Error::kOk;
  const wire::Place where = is_there ? on_wire(place) : wire::Place();
  return framed(MessageType::kCreateReply, builder,
                wire::CreateCreateReply(builder, text, &where, on_wire(error), is_there ? place.segment : 0,
                                        is_there ? static_cast<std::int64_t>(place.segment_bytes) : 0));
}

Bytes create_and_seal_reply(Error error) {
  FlatBufferBuilder builder;
  return framed(MessageType::kCreateAndSealReply, builder, wire::CreateCreateAndSealReply(builder, on_wire(error)));
}

Bytes create_and_seal_batch_reply(Error error) {
  FlatBufferBuilder builder;
  return framed(MessageType::kCreateAndSealBatchReply, builder,
                wire::CreateCreateAndSealBatchReply(builder, on_wire(error)));
}

Bytes abort_reply(const IdBytes& id) {
  FlatBufferBuilder builder;
  return framed(MessageType::kAbortReply, builder, wire::CreateAbortReply(builder, text_of(builder, id)));
}

Bytes seal_reply(const IdBytes& id, Error error) {
  FlatBufferBuilder builder;
  return framed(MessageType::kSealReply, builder, wire::CreateSealReply(builder, text_of(builder, id), on_wire(error)));
}

Bytes get_reply(std::span<const IdBytes> ids, std::span<const ObjectPlace> places) {
  FlatBufferBuilder builder;
  std::vector<Offset<flatbuffers::String>> texts;
  std::vector<wire::Place> on_wire_places;
  std::vector<std::int32_t> segments;
  std::vector<std::int64_t> segment_bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    texts.push_back(text_of(builder, ids[i]));
    on_wire_places.push_back(on_wire(places[i]));
    if (places[i].segment < 0 || std::ranges::find(segments, places[i].segment) != segments.end()) continue;
    segments.push_back(places[i].segment);
    segment_bytes.push_back(static_cast<std::int64_t>(places[i].segment_bytes));
  }
  const auto id_vector = builder.CreateVector(texts);
  const auto place_vector = builder.CreateVectorOfStructs(on_wire_places);
  const auto segment_vector = builder.CreateVector(segments);
  const auto bytes_vector = builder.CreateVector(segment_bytes);
  const auto handles = builder.CreateVector(std::vector<Offset<wire::DeviceHandle>>());
  return framed(MessageType::kGetReply, builder,
                wire::CreateGetReply(builder, id_vector, place_vector, segment_vector, bytes_vector, handles));
}

Bytes delete_reply(std::span<const IdBytes> ids, std::span<const Error> errors) {
  FlatBufferBuilder builder;
  std::vector<Offset<flatbuffers::String>> texts;
  std::vector<std::int32_t> codes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    texts.push_back(text_of(builder, ids[i]));
    codes.push_back(static_cast<std::int32_t>(errors[i]));
  }
  const auto id_vector = builder.CreateVector(texts);
  const auto code_vector = builder.CreateVectorScalarCast<wire::Error>(codes.data(), codes.size());
  return framed(MessageType::kDeleteReply, builder,
                wire::CreateDeleteReply(builder, static_cast<std::int32_t>(ids.size()), id_vector, code_vector));
}

Bytes contains_reply(const IdBytes& id, bool has_object) {
  FlatBufferBuilder builder;
  return framed(MessageType::kContainsReply, builder,
                wire::CreateContainsReply(builder, text_of(builder, id), has_object));
}

Bytes list_reply(std::span<const ObjectDescription> objects) {
  FlatBufferBuilder builder;
  std::vector<Offset<wire::ObjectInfo>> infos;
  infos.reserve(objects.size());
  for (const ObjectDescription& object : objects)
    infos.push_back(on_wire(builder, object));
  return framed(MessageType::kListReply, builder, wire::CreateListReply(builder, builder.CreateVector(infos)));
}

Bytes connect_reply(std::uint64_t capacity_bytes) {
  FlatBufferBuilder builder;
  return framed(MessageType::kConnectReply, builder,
                wire::CreateConnectReply(builder, static_cast<std::int64_t>(capacity_bytes)));
}

Bytes evict_reply(std::uint64_t bytes) {
  FlatBufferBuilder builder;
  return framed(MessageType::kEvictReply, builder, wire::CreateEvictReply(builder, bytes));
}

Bytes set_options_reply(Error error) {
  FlatBufferBuilder builder;
  return framed(MessageType::kSetOptionsReply, builder, wire::CreateSetOptionsReply(builder, on_wire(error)));
}

Bytes debug_string_reply(std::string_view text) {
  FlatBufferBuilder builder;
  return framed(MessageType::kDebugStringReply, builder,
                wire::CreateDebugStringReply(builder, builder.CreateString(text.data(), text.size())));
}

Bytes refresh_lru_reply() {
  FlatBufferBuilder builder;
  return framed(MessageType::kRefreshLruReply, builder, wire::CreateRefreshLruReply(builder));
}

Bytes sealed_notification(std::span<const ObjectDescription> objects) {
  FlatBufferBuilder builder;
  std::vector<Offset<wire::ObjectInfo>> infos;
  for (const ObjectDescription& object : objects)
    infos.push_back(on_wire(builder, object));
  return notification(builder, infos);
}

Bytes deleted_notification(const IdBytes& id) {
  FlatBufferBuilder builder;
  const auto info = wire::CreateObjectInfo(builder, text_of(builder, id), 0, 0, 0, 0, 0, 0, true);
  return notification(builder, {info});
}

}  // namespace entrepot::plasma
