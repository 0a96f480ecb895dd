// Requests of Plasma clients, decoded. Every message is checked by FlatBuffers' verifier first; what is missing, or is
// not 20 bytes where an object ID belongs, is kInvalidArgument.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"

namespace entrepot::plasma {

inline constexpr std::int64_t kProtocolVersion = 0;
inline constexpr std::size_t kHeaderBytes = 24;  // version, type and length of the body: 64 bits each, little-endian

// Numbers on the wire. Release, Disconnect and Subscribe have no reply.
enum class MessageType : std::int64_t {
  kDisconnect = 0,
  kCreateRequest = 1,
  kCreateReply = 2,
  kCreateAndSealRequest = 3,
  kCreateAndSealReply = 4,
  kAbortRequest = 5,
  kAbortReply = 6,
  kSealRequest = 7,
  kSealReply = 8,
  kGetRequest = 9,
  kGetReply = 10,
  kReleaseRequest = 11,
  kDeleteRequest = 13,
  kDeleteReply = 14,
  kContainsRequest = 15,
  kContainsReply = 16,
  kListRequest = 17,
  kListReply = 18,
  kConnectRequest = 19,
  kConnectReply = 20,
  kEvictRequest = 21,
  kEvictReply = 22,
  kSubscribeRequest = 23,
  kSetOptionsRequest = 28,
  kSetOptionsReply = 29,
  kDebugStringRequest = 30,
  kDebugStringReply = 31,
  kCreateAndSealBatchRequest = 32,
  kCreateAndSealBatchReply = 33,
  kRefreshLruRequest = 34,
  kRefreshLruReply = 35,
};

struct Header {
  std::int64_t version = kProtocolVersion;
  MessageType type{};
  std::int64_t length = 0;
};
[[nodiscard]] Header parse_header(std::span<const std::uint8_t> bytes);  // kHeaderBytes of them

using Body = std::span<const std::uint8_t>;

struct CreateRequest {
  IdBytes id{};
  bool evict_if_full = false;
  std::uint64_t data_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  std::int32_t device = 0;
};
[[nodiscard]] Result<CreateRequest> decode_create(Body body);

// The views are into the body.
struct WholeObject {
  IdBytes id{};
  std::string_view data;
  std::string_view metadata;
  std::string_view digest;
};
struct CreateAndSealRequest {
  bool evict_if_full = false;
  std::vector<WholeObject> objects;
};
[[nodiscard]] Result<CreateAndSealRequest> decode_create_and_seal(Body body);
[[nodiscard]] Result<CreateAndSealRequest> decode_create_and_seal_batch(Body body);

struct SealRequest {
  IdBytes id{};
  std::string digest;
};
[[nodiscard]] Result<SealRequest> decode_seal(Body body);

struct GetRequest {
  std::vector<IdBytes> ids;
  std::int64_t timeout_ms = 0;  // negative: none
};
[[nodiscard]] Result<GetRequest> decode_get(Body body);

[[nodiscard]] Result<IdBytes> decode_abort(Body body);
[[nodiscard]] Result<IdBytes> decode_release(Body body);
[[nodiscard]] Result<IdBytes> decode_contains(Body body);
[[nodiscard]] Result<std::vector<IdBytes>> decode_delete(Body body);
[[nodiscard]] Result<std::vector<IdBytes>> decode_refresh_lru(Body body);
[[nodiscard]] Result<std::uint64_t> decode_evict(Body body);  // bytes

struct SetOptionsRequest {
  std::string client_name;
  std::int64_t quota_bytes = 0;
};
[[nodiscard]] Result<SetOptionsRequest> decode_set_options(Body body);

}  // namespace entrepot::plasma
