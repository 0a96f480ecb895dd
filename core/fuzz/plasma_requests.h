// Well-formed requests of Plasma clients, each with the type of its reply.
#pragma once

#include <optional>
#include <string>

#include "fuzz/plasma_wire.h"

namespace entrepot::fuzz {

struct PlasmaRequest {
  Bytes bytes;
  std::optional<plasma::MessageType> reply;  // nothing: there is none
};

namespace detail {

using plasma::MessageType;
inline constexpr const char* kDigest = "digest--";

// Every request's reply has the number that follows its own.
template <class Make>
PlasmaRequest request(MessageType type, Make make) {
  return {plasma_message(type, make), static_cast<MessageType>(static_cast<std::int64_t>(type) + 1)};
}

}  // namespace detail

inline PlasmaRequest connect_request() {
  return detail::request(plasma::MessageType::kConnectRequest,
                         [](auto& builder) { return wire::CreateConnectRequest(builder); });
}

inline PlasmaRequest create_request(const IdBytes& id, std::uint64_t data_bytes, std::uint64_t metadata_bytes,
                                    bool may_evict, std::int32_t device) {
  return detail::request(plasma::MessageType::kCreateRequest, [&](auto& builder) {
    const auto text = builder.CreateString(text_of(id));
    return wire::CreateCreateRequest(builder, text, may_evict, data_bytes, metadata_bytes, device);
  });
}

inline PlasmaRequest seal_request(const IdBytes& id) {
  return detail::request(plasma::MessageType::kSealRequest, [&](auto& builder) {
    const auto text = builder.CreateString(text_of(id));
    return wire::CreateSealRequest(builder, text, builder.CreateString(detail::kDigest));
  });
}

inline PlasmaRequest abort_request(const IdBytes& id) {
  return detail::request(plasma::MessageType::kAbortRequest, [&](auto& builder) {
    return wire::CreateAbortRequest(builder, builder.CreateString(text_of(id)));
  });
}

inline PlasmaRequest get_request(const Ids& ids, std::int64_t timeout_ms) {
  return detail::request(plasma::MessageType::kGetRequest, [&](auto& builder) {
    return wire::CreateGetRequest(builder, builder.CreateVectorOfStrings(texts_of(ids)), timeout_ms);
  });
}

inline PlasmaRequest release_request(const IdBytes& id) {
  const Bytes bytes = plasma_message(plasma::MessageType::kReleaseRequest, [&](auto& builder) {
    return wire::CreateReleaseRequest(builder, builder.CreateString(text_of(id)));
  });
  return {bytes, std::nullopt};
}

inline PlasmaRequest delete_request(const Ids& ids) {
  return detail::request(plasma::MessageType::kDeleteRequest, [&](auto& builder) {
    const auto texts = builder.CreateVectorOfStrings(texts_of(ids));
    return wire::CreateDeleteRequest(builder, static_cast<std::int32_t>(ids.size()), texts);
  });
}

inline PlasmaRequest contains_request(const IdBytes& id) {
  return detail::request(plasma::MessageType::kContainsRequest, [&](auto& builder) {
    return wire::CreateContainsRequest(builder, builder.CreateString(text_of(id)));
  });
}

inline PlasmaRequest list_request() {
  return detail::request(plasma::MessageType::kListRequest,
                         [](auto& builder) { return wire::CreateListRequest(builder); });
}

inline PlasmaRequest evict_request(std::uint64_t bytes) {
  return detail::request(plasma::MessageType::kEvictRequest,
                         [&](auto& builder) { return wire::CreateEvictRequest(builder, bytes); });
}

inline PlasmaRequest refresh_request(const Ids& ids) {
  return detail::request(plasma::MessageType::kRefreshLruRequest, [&](auto& builder) {
    return wire::CreateRefreshLruRequest(builder, builder.CreateVectorOfStrings(texts_of(ids)));
  });
}

inline PlasmaRequest options_request(std::int64_t quota_bytes) {
  return detail::request(plasma::MessageType::kSetOptionsRequest, [&](auto& builder) {
    return wire::CreateSetOptionsRequest(builder, builder.CreateString("fuzz"), quota_bytes);
  });
}

// One object by itself, or several as a batch.
inline PlasmaRequest create_and_seal_request(const Ids& ids, const Strings& data, const Strings& metadata) {
  if (ids.size() == 1) {
    return detail::request(plasma::MessageType::kCreateAndSealRequest, [&](auto& builder) {
      const auto text = builder.CreateString(text_of(ids[0]));
      const auto bytes = builder.CreateString(data[0]);
      const auto more = builder.CreateString(metadata[0]);
      return wire::CreateCreateAndSealRequest(builder, text, true, bytes, more, builder.CreateString(detail::kDigest));
    });
  }
  return detail::request(plasma::MessageType::kCreateAndSealBatchRequest, [&](auto& builder) {
    const auto texts = builder.CreateVectorOfStrings(texts_of(ids));
    const auto bytes = builder.CreateVectorOfStrings(data);
    const auto more = builder.CreateVectorOfStrings(metadata);
    const auto digests = builder.CreateVectorOfStrings(Strings(ids.size(), detail::kDigest));
    return wire::CreateCreateAndSealBatchRequest(builder, texts, true, bytes, more, digests);
  });
}

}  // namespace entrepot::fuzz
