// Put of values that are in the store's memory already: seals them where they are. See client/value_memory.h.
#include <algorithm>

#include "base/align.h"
#include "client/client.h"
#include "client/put_plan.h"
#include "client/value_memory.h"
#include "os/clock.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

// A daemon that does not answer at once is busy or stopped: plain memory is better than waiting.
constexpr std::uint32_t kLeaseAnswerMs = 100;
constexpr std::uint32_t kLeaseWaitMs = 100;
// While the daemon is provisioning, four times what memory costs that a host has to provide first, because others may
// use the processors as well. Plain memory costs the same, and the copy at the put in addition.
constexpr std::uint64_t kProvisioningMsPerGiB = 10'000;
constexpr std::uint64_t kValueShare = 2;  // at most half of the store
// After a refusal, the store is not asked again for a while, and for twice as long after each further one.
constexpr std::uint64_t kFirstBackOffNs = 250'000'000;
constexpr std::uint64_t kMaxBackOffNs = 8'000'000'000;

}  // namespace

Result<LeasedRange> Client::lease_for_value(std::uint64_t bytes) {
  if (!usable_.load(std::memory_order_relaxed)) return Status(Code::kStoreUnavailable, "the store is closed");
  if (pinned_->control().leases_wanted()) return Status(Code::kStoreFull, "other clients are waiting for memory");
  if (value_bytes_.load(std::memory_order_relaxed) + bytes > server().capacity_bytes / kValueShare) {
    return Status(Code::kStoreFull, "values under construction already use their share of the store");
  }
  if (os::monotonic_ns() < value_refused_until_ns_.load(std::memory_order_relaxed)) {
    return Status(Code::kStoreFull, "the store refused memory a moment ago");
  }
  LeasePool::Patience patience{kLeaseWaitMs, kLeaseAnswerMs, 0, [this] {
                                 const ControlView& control = pinned_->control();
                                 return control.provisions_for_leases() && !control.leases_wanted();
                               }};
  patience.provisioning_ms = static_cast<std::uint32_t>(bytes * kProvisioningMsPerGiB >> 30U);
  auto range = leases_.try_allocate(bytes, os::kHugePageBytes, patience);
  if (range.is_ok()) {
    value_bytes_.fetch_add(range->length, std::memory_order_relaxed);
    value_back_off_ns_.store(0, std::memory_order_relaxed);
  } else {
    const std::uint64_t last = value_back_off_ns_.load(std::memory_order_relaxed);
    const std::uint64_t next = std::clamp(2 * last, kFirstBackOffNs, kMaxBackOffNs);
    value_back_off_ns_.store(next, std::memory_order_relaxed);
    value_refused_until_ns_.store(os::monotonic_ns() + next, std::memory_order_relaxed);
  }
  return range;
}

void Client::return_value_lease(const LeasedRange& range) {
  value_released(range.length);
  leases_.give_back(range);
}

void Client::value_freed() {
  last_put_ns_.store(os::monotonic_ns(), std::memory_order_relaxed);
  if (leases_.has_idle()) start_idle_lease_timer();
}

// A value is sealed in place if the object uses at least half of it; otherwise what it uses is copied.
void Client::plan_values(const PutItem& item, PutPlan& plan) {
  if (plan.copies_values) return;
  const ValueMemory& memory = ValueMemory::instance();
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    const SourceBuffer& buffer = item.buffers[i];
    if (plan.shared[i] != 0 || buffer.length == 0) continue;
    const auto place = memory.locate(*this, buffer.data, buffer.length);
    if (!place) continue;
    auto value = std::ranges::find(plan.values, place->start, &PutPlan::Value::start);
    if (value == plan.values.end()) {
      plan.values.push_back({place->start, place->bytes});
      value = std::prev(plan.values.end());
    }
    value->used += buffer.length;
    if (plan.value_of.empty()) plan.value_of.assign(item.buffers.size(), PutPlan::kNoValue);
    plan.value_of[i] = static_cast<std::uint32_t>(value - plan.values.begin());
    plan.seal.buffers[i] = {kNewBlob, 0, place->offset, buffer.length};  // of which blob: see freeze_values
  }
  for (std::uint32_t& value : plan.value_of) {
    if (value != PutPlan::kNoValue && !plan.values[value].is_sealed_in_place()) value = PutPlan::kNoValue;
  }
}

Status Client::plan_and_fill(const PutItem& item, PutPlan& plan, std::uint64_t more, const Wait& room,
                             const Interrupt& interrupt) {
  RETURN_IF_ERROR(fill(item, plan, more, room, interrupt));
  if (plan.values.empty() || freeze_values(plan).is_ok()) return Status::ok();
  // Another thread is putting the same value, or it cannot be pinned: copy it, as any other.
  abandon(plan);
  PutPlan copied;
  copied.index = plan.index;
  copied.item = plan.item;
  copied.parts = plan.parts;
  copied.part_of = std::move(plan.part_of);
  copied.blob_of_part.assign(plan.parts.size(), PutPlan::kNoPart);
  copied.copies_values = true;
  plan = std::move(copied);
  plan_put(item, plan);
  return fill(item, plan, more, room, interrupt);
}

// After everything that can fail for lack of memory, because a frozen value is copied by later puts.
Status Client::freeze_values(PutPlan& plan) {
  for (std::size_t index = 0; index < plan.values.size(); ++index) {
    PutPlan::Value& value = plan.values[index];
    if (!value.is_sealed_in_place()) continue;
    if (plan.pin_position == kNoPin) {
      ASSIGN_OR_RETURN(plan.pin_position, pinned_->reserve_pin());
      plan.seal.pin_position = plan.pin_position;
    }
    auto range = ValueMemory::instance().freeze(value.start);
    if (!range) return Status(Code::kInternal, "the value is not writable any more");
    value.range = *std::move(range);
    value.is_frozen = true;
    if (const std::uint64_t pages = round_up(value.bytes, os::page_bytes()); pages < value.range.length) {
      value_bytes_.fetch_sub(value.range.length - pages, std::memory_order_relaxed);
      leases_.shorten(value.range, pages);
    }
    const auto blob = static_cast<std::uint32_t>(plan.seal.blobs.size());
    plan.seal.blobs.push_back({value.range.segment(), value.range.offset, value.bytes});
    for (std::size_t i = 0; i < plan.value_of.size(); ++i) {
      if (plan.value_of[i] == index) plan.seal.buffers[i].blob = kNewBlob | blob;
    }
  }
  return Status::ok();
}

void Client::finish_values(const PutPlan& plan, bool is_answered) {
  if (plan.pin_position == kNoPin) return;
  ValueMemory& memory = ValueMemory::instance();
  // Without an answer, the daemon may still seal it, and write the pin: neither range nor position is used again.
  const bool is_sealed = is_answered && pinned_->is_pin(plan.pin_position);
  const std::shared_ptr<HeldPin> pin = is_sealed ? pinned_->hold(plan.pin_position) : nullptr;
  if (is_answered && !is_sealed) pinned_->cancel(plan.pin_position);
  for (const PutPlan::Value& value : plan.values) {
    if (!value.is_frozen) continue;
    if (is_answered && !is_sealed) {
      if (!memory.not_sealed(value.start)) return_value_lease(value.range);
      continue;
    }
    // A sealed value counts until it is freed: nothing can evict it before.
    if (!is_sealed || !memory.sealed(value.start, pin)) value_released(value.range.length);
    if (!is_sealed) memory.outcome_unknown(value.start);
    leases_.sealed(value.range);
  }
}

}  // namespace entrepot
