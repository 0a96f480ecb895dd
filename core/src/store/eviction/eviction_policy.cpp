#include "store/eviction/eviction_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace entrepot {

std::uint32_t EvictionPolicy::SlotMap::find(std::uint32_t slot) const {
  const std::size_t page = slot / kPage;
  return page < pages_.size() && pages_[page] ? (*pages_[page])[slot % kPage] : kNone;
}

void EvictionPolicy::SlotMap::put(std::uint32_t slot, std::uint32_t node) {
  const std::size_t page = slot / kPage;
  if (page >= pages_.size()) pages_.resize(page + 1);
  if (!pages_[page]) {
    pages_[page] = std::make_unique<std::array<std::uint32_t, kPage>>();
    pages_[page]->fill(kNone);
  }
  (*pages_[page])[slot % kPage] = node;
}

EvictionPolicy::EvictionPolicy(Replacement global_replacement) : global_replacement_(global_replacement) {}

// ---- lists ----

// Recompute time per byte, as a power of two; 0: not recomputable. victims() looks only at the end of each list, so an
// object that is cheap to recompute must not be queued behind an expensive one.
std::int8_t EvictionPolicy::recompute_bucket_of(const Node& node) {
  if (node.recompute == 0) return 0;
  const double per_byte = RecomputeCode::seconds(node.recompute) * 1e9 / static_cast<double>(node.bytes + 1);
  return static_cast<std::int8_t>(std::clamp(std::ilogb(per_byte) + 64, 1, 127));
}

EvictionPolicy::List& EvictionPolicy::list_of(const Node& node) {
  const std::int8_t recompute_bucket = recompute_bucket_of(node);
  std::vector<List>& lists = sets_[node.set].lists;
  const auto match = std::find_if(lists.begin(), lists.end(), [&](const List& list) {
    return list.priority == node.priority && list.clean == node.clean && list.was_read == node.was_read &&
           list.recompute_bucket == recompute_bucket;
  });
  if (match != lists.end()) return *match;
  lists.push_back({node.priority, node.clean, node.was_read, recompute_bucket, {}});
  return lists.back();
}

void EvictionPolicy::link(std::uint32_t node) {
  const Node& entry = nodes_[node];
  if (entry.pinned) return;
  (entry.dead ? dead_ : list_of(entry).order).insert(nodes_, node);
}

void EvictionPolicy::unlink(std::uint32_t node) {
  const Node& entry = nodes_[node];
  if (entry.pinned) return;
  (entry.dead ? dead_ : list_of(entry).order).erase(nodes_, node);
}

template <class Change>
void EvictionPolicy::change(std::uint32_t slot, Change&& apply) {
  const std::uint32_t node = find(slot);
  if (node == kNone) return;
  unlink(node);
  apply(nodes_[node]);
  link(node);
}

// ---- objects ----

void EvictionPolicy::admit(std::uint32_t slot, std::uint32_t set, std::uint64_t bytes, std::uint64_t now_ns,
                           std::uint32_t order) {
  forget(slot);
  std::uint32_t node = 0;
  if (free_nodes_.empty()) {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  }
  Node created;
  created.bytes = bytes;
  created.admitted_ns = now_ns;
  created.touched_ns = now_ns;
  created.used = ++uses_;
  created.slot = slot;
  created.set = set;
  created.order = order != 0 ? order : ++last_order_;
  last_order_ = std::max(last_order_, created.order);
  nodes_[node] = created;
  by_slot_.put(slot, node);
  Set& set_entry = sets_[set];
  if (set_entry.first_ns == 0) set_entry.first_ns = now_ns;
  ++set_entry.members;
  ++size_;
  bytes_ += bytes;
  link(node);
}

void EvictionPolicy::forget(std::uint32_t slot) {
  const std::uint32_t node = find(slot);
  if (node == kNone) return;
  unlink(node);
  const std::uint32_t set = nodes_[node].set;
  bytes_ -= nodes_[node].bytes;
  --size_;
  --sets_[set].members;
  free_nodes_.push_back(node);
  by_slot_.put(slot, kNone);
  drop_if_unused(set);
}

void EvictionPolicy::touch(std::uint32_t slot, std::uint64_t now_ns, std::uint32_t reader) {
  change(slot, [&](Node& node) {
    sets_[node.set].pattern.touch(node.order, reader, now_ns);
    node.touched_ns = now_ns;
    node.used = ++uses_;
    node.was_read = true;
  });
}

void EvictionPolicy::set_clean(std::uint32_t slot, bool clean) {
  change(slot, [&](Node& node) { node.clean = clean; });
}

void EvictionPolicy::set_pinned(std::uint32_t slot, bool pinned) {
  change(slot, [&](Node& node) { node.pinned = pinned; });
}

void EvictionPolicy::set_dead(std::uint32_t slot, bool dead) {
  change(slot, [&](Node& node) { node.dead = dead; });
}

void EvictionPolicy::set_priority(std::uint32_t slot, int priority) {
  change(slot, [&](Node& node) {
    node.priority = static_cast<std::int8_t>(std::clamp(priority, kMinPriority, kMaxPriority));
  });
}

void EvictionPolicy::set_recompute(std::uint32_t slot, std::uint16_t code) {
  change(slot, [&](Node& node) { node.recompute = code; });
}

void EvictionPolicy::move(std::uint32_t slot, std::uint32_t set) {
  const std::uint32_t at = find(slot);
  if (at == kNone || nodes_[at].set == set) return;
  const std::uint32_t from = nodes_[at].set;
  change(slot, [&](Node& node) {
    Set& set_entry = sets_[set];
    if (set_entry.first_ns == 0) set_entry.first_ns = node.admitted_ns;
    --sets_[from].members;
    ++set_entry.members;
    node.set = set;
  });
  drop_if_unused(from);
}

// ---- sets ----

void EvictionPolicy::define(std::uint32_t set, const SetAttributes& attributes) {
  Set& set_entry = sets_[set];
  set_entry.attributes = attributes;
  set_entry.defined = true;
  set_entry.ending = false;
}

void EvictionPolicy::undefine(std::uint32_t set) {
  const auto it = sets_.find(set);
  if (it == sets_.end()) return;
  it->second.defined = false;
  it->second.ending = true;
  it->second.pattern = {};
  drop_if_unused(set);
}

void EvictionPolicy::drop_if_unused(std::uint32_t set) {
  const auto it = sets_.find(set);
  if (it == sets_.end() || it->second.members != 0) return;
  it->second.lists.clear();
  // The pattern learned from a set's reads is kept while members come and go, until the set is undefined.
  if (it->second.ending) sets_.erase(it);
}

const SetAttributes& EvictionPolicy::attributes_of(const Set& set) const {
  static const SetAttributes kDefault;
  if (set.defined) return set.attributes;
  const auto it = sets_.find(0);
  return it == sets_.end() || !it->second.defined ? kDefault : it->second.attributes;
}

SetAttributes EvictionPolicy::attributes(std::uint32_t set) const {
  const auto it = sets_.find(set);
  return attributes_of(it == sets_.end() ? Set{} : it->second);
}

ReadPattern EvictionPolicy::reading_of(const Set& set) const {
  const ReadPattern declared = attributes_of(set).reading;
  return declared == ReadPattern::kUnknown ? set.pattern.reading() : declared;
}

ReadPattern EvictionPolicy::reading(std::uint32_t set) const {
  const auto it = sets_.find(set);
  return reading_of(it == sets_.end() ? Set{} : it->second);
}

bool EvictionPolicy::is_clean(std::uint32_t slot) const {
  const std::uint32_t node = find(slot);
  return node != kNone && nodes_[node].clean;
}

bool EvictionPolicy::is_cheaper_to_drop(std::uint32_t slot, std::uint64_t now_ns) const {
  const std::uint32_t node = find(slot);
  if (node == kNone || nodes_[node].recompute == 0) return false;
  // Applies also in a set that is ranked by recency alone.
  return expected_cost(measured_, input_of(sets_.at(nodes_[node].set), nodes_[node], now_ns)).would_drop;
}

bool EvictionPolicy::is_dead(std::uint32_t slot) const {
  const std::uint32_t node = find(slot);
  return node != kNone && nodes_[node].dead;
}

}  // namespace entrepot
