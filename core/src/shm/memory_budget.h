// MemoryBudget: the one account of what a store takes of the machine's memory. Whatever grows asks it first.
//
// The limit is the store's --size. What clients cost by being there (pin tables, the tables of clients and sessions) is
// paid from a margin beyond it first, so that a full store still lets somebody in who deletes. Buffers of connections
// are counted, but do not go for the limit: what one client sends in halves must not keep others out. They have a limit
// of their own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace entrepot {

enum class BudgetItem : std::uint8_t {
  kSegments,  // payload: in use, warm ahead of demand, or being provisioned
  kRecords,
  kSlots,
  kBlobs,
  kIndex,
  kNames,
  kSets,
  kConsumptions,
  kTables,     // root, and the tables of segments, sessions and clients
  kPinTables,  // as far as they have grown
  kBuffers,    // not limited here: of connections: requests that are not whole, answers that are not read
};
inline constexpr std::size_t kBudgetItems = 11;
[[nodiscard]] std::string_view budget_item_name(BudgetItem item);  // "segments"

// Guarded by the daemon's thread.
class MemoryBudget {
 public:
  static constexpr std::uint64_t kMarginBytes = 3U << 19;  // 1.5 MiB; the rest of 2 MiB is rounding

  explicit MemoryBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // From now on there is a limit. A store that takes over or begins is not refused what it had.
  void enforce() { enforced_ = true; }
  // Called when something is short of `bytes`: gives back what nobody uses, so that free_bytes() reaches them.
  void on_short(std::function<bool(std::uint64_t bytes)> make_room) { make_room_ = std::move(make_room); }

  // Grants the bytes, or says kStoreFull and changes nothing.
  [[nodiscard]] Status take(BudgetItem item, std::uint64_t bytes);
  // What is there already, or cannot be refused any more.
  void charge(BudgetItem item, std::uint64_t bytes);
  void give(BudgetItem item, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_; }
  [[nodiscard]] std::uint64_t free_bytes() const;
  [[nodiscard]] std::uint64_t granted(BudgetItem item) const { return granted_.at(static_cast<std::size_t>(item)); }
  [[nodiscard]] std::uint64_t granted() const { return large_ + small_ + granted(BudgetItem::kBuffers); }
  // Of the limit, what is not payload and does not go for it.
  [[nodiscard]] std::uint64_t fixed_bytes() const { return taken() - granted(BudgetItem::kSegments); }
  [[nodiscard]] std::string describe() const;  // "segments 60 MiB, slots 64 KiB"; what has nothing is left out

 private:
  [[nodiscard]] static bool has_margin(BudgetItem item) { return item >= BudgetItem::kTables; }
  void add(BudgetItem item, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t taken() const { return large_ + (small_ > kMarginBytes ? small_ - kMarginBytes : 0); }
  [[nodiscard]] bool fits(BudgetItem item, std::uint64_t bytes) const;

  std::uint64_t limit_;
  bool enforced_ = false;
  std::array<std::uint64_t, kBudgetItems> granted_{};
  std::uint64_t large_ = 0;  // of items that only the limit pays
  std::uint64_t small_ = 0;  // of items that the margin pays first
  std::function<bool(std::uint64_t)> make_room_;
};

}  // namespace entrepot
