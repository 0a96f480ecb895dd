// MemoryBudget: accounts for all the memory that a store uses. Everything that grows asks it first.
//
// The limit is the store's --size. The fixed costs of clients (pin tables, the tables of clients and sessions) are paid
// from a margin beyond the limit first, so that a full store still accepts a client that wants to delete. Connection
// buffers are counted, but not against this limit: a client that sends partial requests must not lock out others. They
// have their own limit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

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
  kTables,     // root, and the tables of segments, sessions, clients and openings
  kPinTables,  // as far as they have grown
  kBuffers,    // connections' partial requests and unread answers; not limited here
  kHeap,       // the daemon's own memory for what the tables contain: an estimate, see daemon_heap_bytes()
};
inline constexpr std::size_t kBudgetItems = 12;
[[nodiscard]] std::string_view budget_item_name(BudgetItem item);  // "segments"

// Guarded by the daemon's thread.
class MemoryBudget {
 public:
  static constexpr std::uint64_t kMarginBytes = 3U << 19;  // 1.5 MiB; the rest of 2 MiB is for rounding

  explicit MemoryBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Enforces the limit from now on. A store that starts or recovers is not refused memory that it already uses.
  void enforce() { enforced_ = true; }
  // Sets the callback for a shortage: it should free unused memory until free_bytes() reaches `bytes`.
  void on_shortage(std::function<bool(std::uint64_t bytes)> reclaim) { reclaim_ = std::move(reclaim); }

  // Grants the bytes, or returns kStoreFull and changes nothing.
  [[nodiscard]] Status reserve(BudgetItem item, std::uint64_t bytes);
  // The bytes of the latest refusal, once; 0 if nothing was refused since the last call.
  [[nodiscard]] std::uint64_t take_refused() { return std::exchange(refused_, 0); }
  // Adds what is needed together with the bytes that were just refused.
  void refuse_too(std::uint64_t bytes) { refused_ += refused_ == 0 ? 0 : bytes; }
  // Charges memory that is already in use, or can no longer be refused.
  void charge(BudgetItem item, std::uint64_t bytes);
  void release(BudgetItem item, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_; }
  [[nodiscard]] std::uint64_t free_bytes() const;
  [[nodiscard]] std::uint64_t granted(BudgetItem item) const { return granted_.at(static_cast<std::size_t>(item)); }
  [[nodiscard]] std::uint64_t granted() const { return large_ + small_ + granted(BudgetItem::kBuffers); }
  // Part of the limit that is not available for payload.
  [[nodiscard]] std::uint64_t fixed_bytes() const { return taken() - granted(BudgetItem::kSegments); }
  [[nodiscard]] std::string describe() const;  // "segments 60 MiB, slots 64 KiB"; omits empty items

 private:
  [[nodiscard]] static bool has_margin(BudgetItem item) {
    return item >= BudgetItem::kTables && item <= BudgetItem::kBuffers;
  }
  void add(BudgetItem item, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t taken() const { return large_ + (small_ > kMarginBytes ? small_ - kMarginBytes : 0); }
  [[nodiscard]] bool fits(BudgetItem item, std::uint64_t bytes) const;

  std::uint64_t limit_;
  bool enforced_ = false;
  std::array<std::uint64_t, kBudgetItems> granted_{};
  std::uint64_t large_ = 0;  // items paid from the limit only
  std::uint64_t small_ = 0;  // items paid from the margin first
  std::uint64_t refused_ = 0;
  std::function<bool(std::uint64_t)> reclaim_;
};

}  // namespace entrepot
