#include "shm/memory_budget.h"

#include <algorithm>

#include "base/text.h"

namespace entrepot {

namespace {

constexpr std::array<std::string_view, kBudgetItems> kNames = {"segments", "records",    "slots",   "blobs",
                                                               "index",    "names",      "sets",    "consumptions",
                                                               "tables",   "pin_tables", "buffers", "heap"};

}  // namespace

std::string_view budget_item_name(BudgetItem item) { return kNames.at(static_cast<std::size_t>(item)); }

bool MemoryBudget::fits(BudgetItem item, std::uint64_t bytes) const {
  if (!enforced_) return true;
  const std::uint64_t margin_left = kMarginBytes - std::min(kMarginBytes, small_);
  const std::uint64_t from_limit = has_margin(item) ? bytes - std::min(bytes, margin_left) : bytes;
  return from_limit == 0 || from_limit <= free_bytes();
}

Status MemoryBudget::reserve(BudgetItem item, std::uint64_t bytes) {
  if (!fits(item, bytes) && reclaim_) static_cast<void>(reclaim_(bytes));
  if (!fits(item, bytes)) {
    refused_ = bytes;
    return Status(Code::kStoreFull,
                  concat("no room for ", format_bytes(bytes), " of ", budget_item_name(item),
                         ": the store is limited to ", format_bytes(limit_), " and uses ", describe(),
                         ". Delete unneeded objects, or start the daemon with a larger --size"),
                  true);
  }
  charge(item, bytes);
  return Status::ok();
}

void MemoryBudget::charge(BudgetItem item, std::uint64_t bytes) { add(item, bytes); }

void MemoryBudget::release(BudgetItem item, std::uint64_t bytes) { add(item, -std::min(bytes, granted(item))); }

// `bytes` may be negative, modulo 2^64.
void MemoryBudget::add(BudgetItem item, std::uint64_t bytes) {
  granted_.at(static_cast<std::size_t>(item)) += bytes;
  if (item == BudgetItem::kBuffers) return;
  (has_margin(item) ? small_ : large_) += bytes;
}

std::uint64_t MemoryBudget::free_bytes() const {
  const std::uint64_t used = taken();
  return used >= limit_ ? 0 : limit_ - used;
}

std::string MemoryBudget::describe() const {
  std::string text;
  for (std::size_t i = 0; i < kBudgetItems; ++i) {
    if (granted_.at(i) == 0) continue;
    if (!text.empty()) text += ", ";
    text += concat(kNames.at(i), " ", format_bytes(granted_.at(i)));
  }
  return text;
}

}  // namespace entrepot
