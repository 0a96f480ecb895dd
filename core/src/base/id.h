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

// 64-bit hash of an ID. Part of the control memory's format: every process probes the index with it.
[[nodiscard]] std::uint64_t hash_id(const IdBytes& id);

// Encodes bytes as lower-case hex.
[[nodiscard]] std::string to_hex(std::span<const std::uint8_t> bytes);

// Parses 40 hex digits (either case); otherwise kInvalidArgument naming the length or the offending digit.
[[nodiscard]] Result<IdBytes> id_from_hex(std::string_view text);

// Takes exactly 20 bytes; otherwise kInvalidArgument naming the length.
[[nodiscard]] Result<IdBytes> id_from_bytes(std::span<const std::uint8_t> bytes);

// An object ID that prints, compares and hashes, for maps and messages. For random IDs see os/random.h.
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
