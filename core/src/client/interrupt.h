// Interrupt: lets an interpreter interrupt a wait; checked at least every kWaitSliceMs, with no lock held.
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
