// Replies to Plasma clients and notifications, as they go over the wire: each with its header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "plasma/messages.h"

namespace entrepot::plasma {

using Bytes = std::vector<std::uint8_t>;

enum class Error : std::int32_t {
  kOk = 0,
  kObjectExists = 1,
  kObjectNonexistent = 2,
  kOutOfMemory = 3,
  kObjectNotSealed = 4,
  kObjectInUse = 5,
};

// Where an object is, as clients are told it: the data at this offset of the segment, the metadata right behind.
struct ObjectPlace {
  std::int32_t segment = -1;  // negative: the object is not there
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t metadata_bytes = 0;
};

struct ObjectDescription {
  IdBytes id{};
  std::uint64_t data_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  std::uint32_t holders = 0;
  std::uint64_t created_unix_s = 0;
  std::int64_t construct_s = -1;  // from create to seal; -1: not sealed
  std::string digest;             // empty: not sealed
};

[[nodiscard]] Bytes create_reply(const IdBytes& id, const ObjectPlace& place, Error error);
[[nodiscard]] Bytes create_and_seal_reply(Error error);
[[nodiscard]] Bytes create_and_seal_batch_reply(Error error);
[[nodiscard]] Bytes abort_reply(const IdBytes& id);
[[nodiscard]] Bytes seal_reply(const IdBytes& id, Error error);
[[nodiscard]] Bytes get_reply(std::span<const IdBytes> ids, std::span<const ObjectPlace> places);
[[nodiscard]] Bytes delete_reply(std::span<const IdBytes> ids, std::span<const Error> errors);
[[nodiscard]] Bytes contains_reply(const IdBytes& id, bool has_object);
[[nodiscard]] Bytes list_reply(std::span<const ObjectDescription> objects);
[[nodiscard]] Bytes connect_reply(std::uint64_t capacity_bytes);
[[nodiscard]] Bytes evict_reply(std::uint64_t bytes);
[[nodiscard]] Bytes set_options_reply(Error error);
[[nodiscard]] Bytes debug_string_reply(std::string_view text);
[[nodiscard]] Bytes refresh_lru_reply();

// For a notification socket: a length and a message, without version and type.
[[nodiscard]] Bytes sealed_notification(std::span<const ObjectDescription> objects);
[[nodiscard]] Bytes deleted_notification(const IdBytes& id);

}  // namespace entrepot::plasma
