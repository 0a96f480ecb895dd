// What lets a host language interrupt a wait: asked between slices of at most kWaitSliceMs, without any lock held.
#pragma once

#include <cstdint>

namespace entrepot {

inline constexpr std::uint64_t kWaitSliceMs = 50;

struct Interrupt {
  bool (*check)(void* context) = nullptr;  // true: give up now
  void* context = nullptr;

  [[nodiscard]] bool requested() const { return check != nullptr && check(context); }
};

}  // namespace entrepot
