// Eviction order: merges the candidates of all lists, cheapest first.
#include <algorithm>
#include <cmath>
#include <queue>

#include "base/text.h"
#include "store/eviction/eviction_policy.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxRanked = 10'000;  // explain() stops here
constexpr std::uint64_t kNominalBytes = 1U << 20;

std::uint64_t since(std::uint64_t then_ns, std::uint64_t now_ns) { return now_ns > then_ns ? now_ns - then_ns : 0; }

const char* reading_name(ReadPattern reading) {
  switch (reading) {
    case ReadPattern::kUnknown:
      return "in an unknown order";
    case ReadPattern::kOnce:
      return "once";
    case ReadPattern::kSequential:
      return "in one scan";
    case ReadPattern::kLoopSequential:
      return "in repeated scans";
    case ReadPattern::kRandom:
      return "in random order";
  }
  return "unknown";
}

}  // namespace

CostInput EvictionPolicy::input_of(const Set& set, const Node& node, std::uint64_t now_ns) const {
  CostInput input;
  input.attributes = &attributes_of(set);
  input.reading = reading_of(set);
  input.period_ns = set.pattern.period_ns();
  input.set_age_ns = since(set.first_ns, now_ns);
  input.bytes = node.bytes;
  input.idle_ns = since(node.touched_ns, now_ns);
  input.age_ns = since(node.admitted_ns, now_ns);
  input.was_read = node.was_read;
  input.clean = node.clean;
  input.priority = node.priority;
  if (node.recompute != 0) input.recompute_ns = RecomputeCode::seconds(node.recompute) * 1e9;
  return input;
}

CostTerms EvictionPolicy::cost_of(const Set& set, const Node& node, std::uint64_t now_ns) const {
  const SetAttributes& attributes = attributes_of(set);
  CostInput input = input_of(set, node, now_ns);
  if (attributes.replacement != Replacement::kDataAware) {
    // Within the set only recency may count, so all members get the same value for every other input.
    input.reading = attributes.replacement == Replacement::kMru ? ReadPattern::kLoopSequential : ReadPattern::kRandom;
    input.period_ns = 0;
    input.was_read = true;
    input.clean = true;
    input.bytes = kNominalBytes;
    input.recompute_ns = 0;
  }
  return expected_cost(node.recompute != 0 ? measured_ : costs_, input);
}

class EvictionPolicy::Ranking {
 public:
  Ranking(const EvictionPolicy& policy, std::uint64_t now_ns)
      : policy_(policy), now_ns_(now_ns), dead_(policy.nodes_, policy.dead_, false) {
    for (const auto& [number, set] : policy.sets_) {
      for (const List& list : set.lists) {
        if (list.order.empty()) continue;
        const bool newest = policy.global_replacement_ == Replacement::kDataAware
                                ? evicts_newest_first(policy.attributes_of(set), policy.reading_of(set), list.was_read)
                                : policy.global_replacement_ == Replacement::kMru;
        sources_.push_back({&set, newest, Lru::Iterator(policy.nodes_, list.order, newest)});
        push(static_cast<std::uint32_t>(sources_.size() - 1));
      }
    }
  }

  // Next node to evict; kNone at the end.
  std::uint32_t next() {
    if (const std::uint32_t node = dead_.next(); node != kNone) return node;
    if (heap_.empty()) return kNone;
    const Candidate best = heap_.top();
    heap_.pop();
    push(best.source);
    return best.node;
  }

 private:
  struct Source {
    const Set* set;
    bool newest_first;
    Lru::Iterator walk;
  };
  struct Candidate {
    double cost;
    std::uint64_t recency;  // the smaller goes first
    std::uint32_t node;
    std::uint32_t source;
    bool operator<(const Candidate& other) const {  // the heap's top is its largest element
      return cost != other.cost ? cost > other.cost : recency > other.recency;
    }
  };

  void push(std::uint32_t source) {
    Source& from = sources_[source];
    const std::uint32_t node = from.walk.next();
    if (node == kNone) return;
    const Node& entry = policy_.nodes_[node];
    const double cost =
        policy_.global_replacement_ == Replacement::kDataAware ? policy_.cost_of(*from.set, entry, now_ns_).total : 0;
    heap_.push({cost, from.newest_first ? ~entry.used : entry.used, node, source});
  }

  const EvictionPolicy& policy_;
  std::uint64_t now_ns_;
  Lru::Iterator dead_;
  std::vector<Source> sources_;
  std::priority_queue<Candidate> heap_;
};

std::vector<std::uint32_t> EvictionPolicy::victims(std::uint64_t bytes, std::uint64_t now_ns,
                                                   const std::function<bool(std::uint32_t)>& allowed) const {
  std::vector<std::uint32_t> chosen;
  if (bytes == 0) return chosen;
  Ranking ranking(*this, now_ns);
  std::uint64_t total = 0;
  for (std::uint32_t node = ranking.next(); node != kNone; node = ranking.next()) {
    const Node& entry = nodes_[node];
    if (!allowed(entry.slot)) continue;
    chosen.push_back(entry.slot);
    total += entry.bytes;
    if (total >= bytes) break;
  }
  return chosen;
}

Explanation EvictionPolicy::explain(std::uint32_t slot, std::uint64_t now_ns) const {
  Explanation result;
  const std::uint32_t at = find(slot);
  if (at == kNone) {
    result.text = "it has no payload in memory to evict";
    return result;
  }
  const Node& node = nodes_[at];
  const Set& set = sets_.at(node.set);
  const CostTerms terms = cost_of(set, node, now_ns);
  constexpr double kMiB = 1U << 20;
  result.is_resident = true;
  result.cost = terms.total * kMiB;
  result.write_cost = terms.write * kMiB;
  result.read_cost = terms.read * kMiB;
  result.reads_a_second = terms.reads_a_second;
  result.idle_seconds = static_cast<double>(since(node.touched_ns, now_ns)) * 1e-9;
  result.reading = reading_of(set);
  result.inferred = attributes_of(set).reading == ReadPattern::kUnknown;
  result.clean = node.clean;
  result.dead = node.dead;
  result.pinned = node.pinned;
  result.was_read = node.was_read;
  if (node.recompute != 0) {
    result.recompute_seconds = RecomputeCode::seconds(node.recompute);
    result.recompute_cost = terms.recompute * kMiB;
    result.would_drop = is_cheaper_to_drop(slot, now_ns);
  }
  if (node.pinned) {
    result.text = "it stays in memory because a user asked to keep it there";
    return result;
  }
  Ranking ranking(*this, now_ns);
  for (std::uint32_t other = ranking.next(); other != at && other != kNone; other = ranking.next()) {
    if (result.rank == kMaxRanked) {
      result.rank_is_lower_bound = true;
      break;
    }
    ++result.rank;
    result.bytes_before += nodes_[other].bytes;
  }
  const std::string place =
      result.rank == 0
          ? "no other object is evicted before it"
          : concat(result.rank_is_lower_bound ? "more than " : "", count_of(result.rank, "object"), " of ",
                   format_bytes(result.bytes_before), result.rank == 1 ? " is" : " are", " evicted before it");
  if (node.dead) {
    result.text =
        concat("all its consumers have finished: when memory is short, it is evicted without being written; ", place);
    return result;
  }
  result.text =
      concat(place, "; it was ", node.was_read ? "last read " : "put ", static_cast<std::uint64_t>(result.idle_seconds),
             node.was_read ? " s ago, and has " : " s ago and not read since, and has ",
             node.clean ? "a complete copy on disk" : "no copy on disk yet",
             result.inferred ? "; its set seems to be read " : "; its set is read ", reading_name(result.reading));
  if (node.recompute != 0) {
    result.text +=
        concat("; recomputing it takes ", format_seconds(result.recompute_seconds),
               result.would_drop ? ", which is expected to cost less than writing it and reading it back, so it "
                                   "would be dropped"
                                 : ", which is expected to cost more than spilling it");
  }
  return result;
}

}  // namespace entrepot
