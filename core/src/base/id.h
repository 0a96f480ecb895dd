// Object IDs: 20 bytes, written as 40 lower-case hex digits.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace entrepot {

inline constexpr std::size_t kIdBytes = 20;
using IdBytes = std::array<std::uint8_t, kIdBytes>;
using InstanceId = std::array<std::uint8_t, 16>;

// 64 bits of an ID's hash. Part of the control memory's format: the index is probed by it in every process.
[[nodiscard]] std::uint64_t hash_id(const IdBytes& id);

// Lower-case hex of any bytes.
[[nodiscard]] std::string to_hex(std::span<const std::uint8_t> bytes);

// 40 hex digits (either case); anything else is kInvalidArgument naming the length or the digit.
[[nodiscard]] Result<IdBytes> id_from_hex(std::string_view text);

// Exactly 20 bytes; anything else is kInvalidArgument naming the length.
[[nodiscard]] Result<IdBytes> id_from_bytes(std::span<const std::uint8_t> bytes);

// An IdBytes that prints, compares and hashes; for maps and messages. Random ones: os/random.h.
struct ObjectId {
  IdBytes bytes{};

  [[nodiscard]] std::string hex() const { return to_hex(bytes); }
  [[nodiscard]] static Result<ObjectId> from_hex(std::string_view text);
  auto operator<=>(const ObjectId&) const = default;
};

struct IdHash {
  std::size_t operator()(const IdBytes& id) const { return static_cast<std::size_t>(hash_id(id)); }
  std::size_t operator()(const ObjectId& id) const { return static_cast<std::size_t>(hash_id(id.bytes)); }
};

}  // namespace entrepot

template <>
struct std::hash<entrepot::ObjectId> {
  std::size_t operator()(const entrepot::ObjectId& id) const noexcept { return entrepot::IdHash{}(id); }
};
