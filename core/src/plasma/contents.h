// Contents: what a Plasma client sees of an object of the store. Which values are Plasma objects to it is in
// docs/plasma.md, how they are packed in docs/formats/metadata.md.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "client/sealed_object.h"

namespace entrepot::plasma {

// The packed tree of a Plasma object, whose two buffers are data and metadata.
inline constexpr std::string_view kPlasmaTree(
    "\x92\x01\x95\xad"
    "plasma.Object\x01\x81\xa6"
    "source\xa6"
    "plasma\x92\x00\x01\x90",
    37);

// Data and metadata of an object of the store, as a Plasma client sees them. Valid as long as the object.
struct Contents {
  std::span<const std::byte> data;
  std::span<const std::byte> metadata;
  bool is_plasma = false;  // it was put as a Plasma object
};

// Nothing for objects whose bytes mean something only to a codec. See docs/plasma.md.
[[nodiscard]] std::optional<Contents> contents_of(const SealedObject& object);

}  // namespace entrepot::plasma
