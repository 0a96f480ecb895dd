#include "store/paging/eviction_candidates.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHoldNs = 250'000'000;  // for the requester to pin what was loaded
constexpr std::size_t kMaxHeld = 1024;          // those whose time is over included

}  // namespace

void EvictionCandidates::admit(std::uint32_t slot) {
  const DirectoryWriter& directory = deps_.catalog.directory();
  const Slot& entry = directory.at(slot);
  policy_.admit(slot, deps_.sets.policy_number(entry.session, entry.locality_set), deps_.residency.resident_bytes(slot),
                deps_.clock.monotonic_ns(), directory.generation(slot));
  policy_.set_clean(slot, deps_.residency.is_clean(slot));
  const SlotHints hints = directory.hints(slot);
  if (hints.priority != 0) policy_.set_priority(slot, hints.priority);
  if (hints.pinned) {
    policy_.set_pinned(slot, true);
    user_pinned_.insert(slot);
  }
  if (hints.dead) policy_.set_dead(slot, true);
  if (hints.drop_recompute_code() != 0) policy_.set_recompute(slot, hints.drop_recompute_code());
}

void EvictionCandidates::object_sealed(std::uint32_t slot) {
  if (deps_.spills) admit(slot);
}

void EvictionCandidates::object_ended(std::uint32_t slot) {
  policy_.forget(slot);
  user_pinned_.erase(slot);
  held_until_ns_.erase(slot);
}

void EvictionCandidates::hints_changed(std::uint32_t slot) {
  const DirectoryWriter& directory = deps_.catalog.directory();
  const Slot& entry = directory.at(slot);
  const SlotHints hints = directory.hints(slot);
  const bool can_go = hints.dead || hints.drop_recompute_code() != 0;
  if (!deps_.spills && can_go && !policy_.is_admitted(slot) && deps_.residency.resident_bytes(slot) != 0) admit(slot);
  policy_.move(slot, deps_.sets.policy_number(entry.session, entry.locality_set));
  policy_.set_priority(slot, hints.priority);
  policy_.set_pinned(slot, hints.pinned);
  if (hints.pinned) {
    user_pinned_.insert(slot);
  } else {
    user_pinned_.erase(slot);
  }
  policy_.set_dead(slot, hints.dead);
  policy_.set_recompute(slot, hints.drop_recompute_code());
}

void EvictionCandidates::evicted(std::uint32_t slot) {
  held_until_ns_.erase(slot);
  admit(slot);  // with the part still in memory
}

void EvictionCandidates::forget_absent(std::uint32_t slot) {
  if (deps_.residency.resident_bytes(slot) == 0) policy_.forget(slot);
}

void EvictionCandidates::was_read(std::uint32_t slot, std::uint32_t reader, std::uint64_t now_ns) {
  policy_.touch(slot, now_ns, reader);
  held_until_ns_.erase(slot);  // if it was loaded for this reader, that has pinned it
}

void EvictionCandidates::hold(std::uint32_t slot) { held_until_ns_[slot] = deps_.clock.monotonic_ns() + kHoldNs; }

bool EvictionCandidates::is_held(std::uint32_t slot) const {
  const auto it = held_until_ns_.find(slot);
  return it != held_until_ns_.end() && deps_.clock.monotonic_ns() < it->second;
}

void EvictionCandidates::trim_held() {
  if (held_until_ns_.size() <= kMaxHeld) return;
  const std::uint64_t now = deps_.clock.monotonic_ns();
  std::erase_if(held_until_ns_, [now](const auto& entry) { return entry.second <= now; });
}

std::unordered_set<std::uint32_t> EvictionCandidates::pinned_slots() const {
  std::unordered_set<std::uint32_t> slots;
  deps_.pins.for_each([&](std::uint32_t, const PinTarget& target) { slots.insert(target.slot); });
  return slots;
}

}  // namespace entrepot
