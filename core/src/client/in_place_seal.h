// InPlaceSeal: the outcome of a seal of memory that was leased and passed on; see Client::seal_in_place().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "client/pinned_set.h"

namespace entrepot {

// What became of a range that was to be sealed where it is.
struct InPlaceSeal {
  Status status;
  std::uint32_t generation = 0;
  bool is_leased = true;  // the range still is; false: the store has taken it over, or may have
  // The object's pin, taken with the seal, so that its memory stays as it is. Null: it was not sealed, or holds no bytes.
  std::shared_ptr<HeldPin> pin;
  bool is_unanswered = false;  // the deadline came first: it may have been sealed, or be sealed later
  // Where its pin is, or will be, if it is unanswered; to be passed to settle_seal().
  std::optional<std::uint32_t> unanswered_pin;
};

}  // namespace entrepot
