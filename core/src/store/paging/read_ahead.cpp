#include "store/paging/read_ahead.h"

#include <algorithm>

namespace entrepot {
namespace {

constexpr std::uint32_t kReach = 4;  // maximum distance between readers that share a run
constexpr std::uint32_t kConfirmedSteps = 2;
constexpr std::uint32_t kRunsOfReader = 2;            // a third one replaces the older
constexpr std::uint64_t kInactiveNs = 2'000'000'000;  // a run without a use for so long is inactive
constexpr std::uint32_t kFar = 0xffff'ffffU;

}  // namespace

void ReadAhead::add(std::uint32_t slot, std::uint32_t set, std::uint32_t order) {
  remove(slot);
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  slots_[slot] = {set, order, true};
  by_seal_order_.insert_or_assign(by_seal_order_.end(), {set, order}, slot);
}

void ReadAhead::trim_slots(std::uint32_t end) {
  if (end >= slots_.size()) return;
  slots_.resize(end);
  slots_.shrink_to_fit();
}

void ReadAhead::remove(std::uint32_t slot) {
  if (slot >= slots_.size() || !slots_[slot].used) return;
  const SlotState place = slots_[slot];
  slots_[slot].used = false;
  const auto at = by_seal_order_.find({place.set, place.order});
  if (at == by_seal_order_.end() || at->second != slot) return;
  // A run whose last object ends continues from the one before, so consumers may delete what they have read.
  for (Run& run : runs_) {
    if (!run.used || run.set != place.set || run.order != place.order) continue;
    SealOrder::const_iterator before = at;
    Run back = run;
    back.backward = !run.backward;
    if (next(before, back)) {
      run.order = before->first.second;
    } else {
      run.used = false;
    }
  }
  by_seal_order_.erase(at);
}

void ReadAhead::move(std::uint32_t slot, std::uint32_t set) {
  if (slot >= slots_.size() || !slots_[slot].used || slots_[slot].set == set) return;
  const std::uint32_t order = slots_[slot].order;
  add(slot, set, order);
}

bool ReadAhead::next(SealOrder::const_iterator& at, const Run& run) const {
  if (at == by_seal_order_.end()) return false;
  if (run.backward) {
    if (at == by_seal_order_.begin()) return false;
    --at;
  } else if (++at == by_seal_order_.end()) {
    return false;
  }
  return at->first.first == run.set;
}

// Steps to `order` in the run's direction; kFar if it is out of reach.
std::uint32_t ReadAhead::distance(const Run& from, std::uint32_t order) const {
  auto at = by_seal_order_.find({from.set, from.order});
  for (std::uint32_t steps = 1; steps <= kReach && next(at, from); ++steps) {
    if (at->first.second == order) return steps;
  }
  return kFar;
}

bool ReadAhead::advance(Run& run, std::uint32_t order) const {
  if (order == run.order) return true;
  const std::uint32_t ahead = distance(run, order);
  Run turned = run;
  turned.backward = !run.backward;
  const std::uint32_t behind = ahead == kFar ? distance(turned, order) : kFar;
  if (ahead == kFar && behind == 1 && run.steps == 0 && !run.declared) {
    run.backward = !run.backward;
  } else if (ahead == kFar) {
    return behind != kFar && run.steps != 0;  // another reader of the run is slightly behind
  }
  run.order = order;
  if (ahead == 1 || behind == 1) ++run.steps;
  return true;
}

bool ReadAhead::has_reader(const Run& run, std::uint32_t reader) {
  return std::find(run.readers.begin(), run.readers.end(), reader) != run.readers.end();
}

bool ReadAhead::advance_own_run(std::uint32_t set, std::uint32_t order, std::uint32_t reader, std::uint64_t now_ns) {
  for (Run& run : runs_) {
    if (!run.used || run.set != set || !has_reader(run, reader)) continue;
    const std::uint32_t before = run.order;
    if (!advance(run, order)) continue;
    run.used_ns = now_ns;
    if (run.order != before) ++steps_;
    return true;
  }
  return false;
}

// A reader without a run may join another's.
bool ReadAhead::join(std::uint32_t set, std::uint32_t order, std::uint32_t reader, std::uint64_t now_ns) {
  for (Run& run : runs_) {
    if (!run.used || run.set != set) continue;
    const auto room = std::find(run.readers.begin(), run.readers.end(), kNobody);
    if (room == run.readers.end() || !advance(run, order)) continue;
    *room = reader;
    run.used_ns = now_ns;
    ++steps_;
    return true;
  }
  return false;
}

// The reader is elsewhere: its runs have to be confirmed again. Returns how many runs it is on.
std::uint32_t ReadAhead::detach_reader(std::uint32_t set, std::uint32_t reader) {
  std::uint32_t has = 0;
  for (Run& run : runs_) {
    if (!run.used || run.set != set || !has_reader(run, reader)) continue;
    ++has;
    run.steps = 0;
    run.declared = false;
  }
  return has;
}

void ReadAhead::touch(std::uint32_t slot, std::uint32_t reader, ReadPattern declared, std::uint64_t now_ns) {
  if (slot >= slots_.size() || !slots_[slot].used || declared == ReadPattern::kRandom) return;
  const SlotState place = slots_[slot];
  if (advance_own_run(place.set, place.order, reader, now_ns)) return;
  const std::uint32_t has = detach_reader(place.set, reader);
  if (has == 0 && join(place.set, place.order, reader, now_ns)) return;
  Run& run = replaceable(place.set, reader, has);
  run = {};
  run.set = place.set;
  run.order = place.order;
  run.readers[0] = reader;
  run.used = true;
  run.declared = declared == ReadPattern::kSequential || declared == ReadPattern::kLoopSequential;
  run.used_ns = now_ns;
  ++steps_;
}

// The older run of a reader that is on two; otherwise a free one, or the least recently used.
ReadAhead::Run& ReadAhead::replaceable(std::uint32_t set, std::uint32_t reader, std::uint32_t has) {
  const auto older = [](const Run& left, const Run& other) { return left.used_ns < other.used_ns; };
  if (has >= kRunsOfReader) {
    Run* own_run = nullptr;
    for (Run& run : runs_) {
      if (!run.used || run.set != set || !has_reader(run, reader)) continue;
      if (own_run == nullptr || older(run, *own_run)) own_run = &run;
    }
    return *own_run;
  }
  const auto free = std::find_if(runs_.begin(), runs_.end(), [](const Run& run) { return !run.used; });
  return free != runs_.end() ? *free : *std::min_element(runs_.begin(), runs_.end(), older);
}

std::vector<const ReadAhead::Run*> ReadAhead::active(std::uint64_t now_ns) const {
  std::vector<const Run*> runs;
  for (const Run& run : runs_) {
    const bool is_known = run.declared || run.steps >= kConfirmedSteps;
    if (run.used && is_known && now_ns < run.used_ns + kInactiveNs) runs.push_back(&run);
  }
  std::sort(runs.begin(), runs.end(), [](const Run* left, const Run* other) { return left->used_ns > other->used_ns; });
  return runs;
}

}  // namespace entrepot
