// Requests of Plasma clients for fuzz targets, as they go over the wire, and the pieces of the replies.
#pragma once

#include <string>
#include <vector>

#include "base/id.h"
#include "fuzz/fuzz_input.h"
#include "plasma/messages.h"
#include "plasma/plasma_generated.h"

namespace entrepot::fuzz {

namespace wire = plasma::wire;
using Ids = std::vector<IdBytes>;
using Strings = std::vector<std::string>;

// A header and a body, whatever they are.
inline Bytes plasma_message(plasma::MessageType type, std::span<const std::uint8_t> body) {
  const std::int64_t header[] = {plasma::kProtocolVersion, static_cast<std::int64_t>(type),
                                 static_cast<std::int64_t>(body.size())};
  Bytes bytes = bytes_of(header, sizeof header);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

// `make(builder)` returns the body's root table.
template <class Make>
Bytes plasma_message(plasma::MessageType type, Make make) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(make(builder));
  return plasma_message(type, std::span<const std::uint8_t>(builder.GetBufferPointer(), builder.GetSize()));
}

inline std::string text_of(const IdBytes& id) { return {reinterpret_cast<const char*>(id.data()), id.size()}; }

inline Strings texts_of(const Ids& ids) {
  Strings texts;
  for (const IdBytes& id : ids)
    texts.push_back(text_of(id));
  return texts;
}

inline IdBytes id_of(const flatbuffers::String& text) {
  IdBytes id{};
  require(text.size() == id.size(), "an ID in a reply has 20 bytes");
  std::memcpy(id.data(), text.data(), id.size());
  return id;
}

// The body's root table, checked.
template <class Table>
const Table& plasma_reply(const Bytes& body) {
  flatbuffers::Verifier verifier(body.data(), body.size());
  require(verifier.VerifyBuffer<Table>(nullptr), "a reply can be read");
  return *flatbuffers::GetRoot<Table>(body.data());
}

}  // namespace entrepot::fuzz
