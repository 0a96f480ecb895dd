// The policy's lists against a naive model that examines every object for every victim.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "store/eviction/eviction_policy.h"

namespace entrepot {
namespace {

class Naive {
 public:
  struct Object {
    std::uint32_t set = 0;
    std::uint64_t bytes = 0, admitted_ns = 0, touched_ns = 0, used = 0;
    std::uint32_t order = 0;
    int priority = 0;
    bool clean = false, dead = false, pinned = false, was_read = false;
  };
  struct Set {
    std::optional<SetAttributes> attributes;
    AccessPattern pattern;
    std::uint64_t first_ns = 0;
  };

  void admit(std::uint32_t slot, std::uint32_t set, std::uint64_t bytes, std::uint64_t now_ns, std::uint32_t order) {
    objects[slot] = {set, bytes, now_ns, now_ns, ++uses, order};
    if (sets[set].first_ns == 0) sets[set].first_ns = now_ns;
  }
  void touch(std::uint32_t slot, std::uint64_t now_ns) {
    const auto it = objects.find(slot);
    if (it == objects.end()) return;
    sets[it->second.set].pattern.touch(it->second.order, 0, now_ns);
    it->second.touched_ns = now_ns;
    it->second.used = ++uses;
    it->second.was_read = true;
  }
  [[nodiscard]] const SetAttributes& attributes(const Set& set) const {
    static const SetAttributes kDefault;
    if (set.attributes) return *set.attributes;
    const auto it = sets.find(0);
    return it != sets.end() && it->second.attributes ? *it->second.attributes : kDefault;
  }
  [[nodiscard]] std::vector<std::uint32_t> victims(std::uint64_t bytes, std::uint64_t now_ns,
                                                   const std::function<bool(std::uint32_t)>& allowed) const {
    std::vector<std::uint32_t> chosen;
    std::map<std::uint32_t, Object> left = objects;
    std::uint64_t total = 0;
    while (total < bytes) {
      const auto next = best(left, now_ns);
      if (!next) break;
      const Object object = left.at(*next);
      left.erase(*next);
      if (!allowed(*next)) continue;
      chosen.push_back(*next);
      total += object.bytes;
    }
    return chosen;
  }

  std::map<std::uint32_t, Object> objects;
  std::map<std::uint32_t, Set> sets;
  std::uint64_t uses = 0;

 private:
  // Takes the first of each group (set, read, clean, priority), and returns the cheapest of those.
  [[nodiscard]] std::optional<std::uint32_t> best(const std::map<std::uint32_t, Object>& left,
                                                  std::uint64_t now_ns) const {
    std::map<std::tuple<std::uint32_t, bool, bool, int>, std::pair<std::uint64_t, std::uint32_t>> firsts;
    std::optional<std::pair<std::uint64_t, std::uint32_t>> dead;
    for (const auto& [slot, object] : left) {
      if (object.pinned) continue;
      if (object.dead) {
        if (!dead || object.used < dead->first) dead = {object.used, slot};
        continue;
      }
      const Set& set = sets.at(object.set);
      const SetAttributes& its = attributes(set);
      const ReadPattern reading = its.reading == ReadPattern::kUnknown ? set.pattern.reading() : its.reading;
      const std::uint64_t rank = evicts_newest_first(its, reading, object.was_read) ? ~object.used : object.used;
      const auto key = std::tuple(object.set, object.was_read, object.clean, object.priority);
      const auto [it, fresh] = firsts.try_emplace(key, rank, slot);
      if (!fresh && rank < it->second.first) it->second = {rank, slot};
    }
    if (dead) return dead->second;
    std::optional<std::tuple<double, std::uint64_t, std::uint32_t>> cheapest;
    for (const auto& [key, first] : firsts) {
      const Object& object = left.at(first.second);
      const Set& set = sets.at(object.set);
      const SetAttributes& its = attributes(set);
      CostInput input{&its,
                      its.reading == ReadPattern::kUnknown ? set.pattern.reading() : its.reading,
                      set.pattern.period_ns(),
                      now_ns - set.first_ns,
                      object.bytes,
                      now_ns - object.touched_ns,
                      now_ns - object.admitted_ns,
                      object.was_read,
                      object.clean,
                      object.priority};
      if (its.replacement != Replacement::kDataAware) {
        input.reading = its.replacement == Replacement::kMru ? ReadPattern::kLoopSequential : ReadPattern::kRandom;
        input.period_ns = 0;
        input.was_read = input.clean = true;
        input.bytes = 1U << 20;
      }
      const std::tuple candidate(expected_cost({}, input).total, first.first, first.second);
      if (!cheapest || candidate < *cheapest) cheapest = candidate;
    }
    return cheapest ? std::optional(std::get<2>(*cheapest)) : std::nullopt;
  }
};

SetAttributes any_attributes(std::mt19937& random) {
  SetAttributes attributes;
  attributes.durability = static_cast<Durability>(random() % 2);
  attributes.reading = static_cast<ReadPattern>(random() % 5);
  attributes.writing = static_cast<WritePattern>(random() % 3);
  attributes.lifetime = static_cast<Lifetime>(random() % 3);
  attributes.operation = static_cast<Operation>(random() % 3);
  attributes.replacement = static_cast<Replacement>(random() % 3);
  attributes.priority = static_cast<std::int8_t>(static_cast<int>(random() % 5) - 2);
  return attributes;
}

TEST(EvictionModel, RandomOperationsChooseWhatTheNaiveModelChooses) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    EvictionPolicy policy;
    Naive naive;
    std::uint64_t now_ns = 1'000'000'000;
    std::uint32_t order = 0;
    for (int step = 0; step < 1500; ++step) {
      now_ns += random() % 50'000'000;
      const auto slot = static_cast<std::uint32_t>(random() % 60) * 517;  // spread over several pages of the slot table
      const auto set = static_cast<std::uint32_t>(random() % 5);
      const bool exists = naive.objects.contains(slot);
      switch (random() % 12) {
        case 0:
        case 1:
        case 2:
          if (exists) break;
          ++order;
          policy.admit(slot, set, 1000 + random() % 5'000'000, now_ns, order);
          policy.forget(slot);  // admits twice, as one lifetime
          {
            const std::uint64_t bytes = 1000 + random() % 5'000'000;
            policy.admit(slot, set, bytes, now_ns, order);
            naive.admit(slot, set, bytes, now_ns, order);
            ++naive.uses;
          }
          break;
        case 3:
        case 4:
        case 5:
          policy.touch(slot, now_ns);
          naive.touch(slot, now_ns);
          break;
        case 6:
          policy.set_clean(slot, (step & 1) != 0);
          if (exists) naive.objects[slot].clean = (step & 1) != 0;
          break;
        case 7:
          policy.set_pinned(slot, (step & 3) == 0);
          if (exists) naive.objects[slot].pinned = (step & 3) == 0;
          break;
        case 8:
          policy.set_dead(slot, (step & 3) == 0);
          if (exists) naive.objects[slot].dead = (step & 3) == 0;
          break;
        case 9: {
          const int priority = static_cast<int>(random() % 4) - 2;
          policy.set_priority(slot, priority);
          if (exists) naive.objects[slot].priority = priority;
          break;
        }
        case 10:
          if (random() % 4 == 0) {
            const SetAttributes attributes = any_attributes(random);
            policy.define(set, attributes);
            naive.sets[set].attributes = attributes;
          } else {
            policy.forget(slot);
            naive.objects.erase(slot);
          }
          break;
        default: {
          const std::uint64_t bytes = random() % 20'000'000;
          const auto refused = static_cast<std::uint32_t>(random() % 7);
          const auto allowed = [&](std::uint32_t candidate) { return candidate % 7 != refused; };
          ASSERT_EQ(policy.victims(bytes, now_ns, allowed), naive.victims(bytes, now_ns, allowed)) << "step " << step;
          if (exists && !naive.objects[slot].pinned) {
            const auto all = naive.victims(~0ULL, now_ns, [](std::uint32_t) { return true; });
            const auto place = std::find(all.begin(), all.end(), slot) - all.begin();
            ASSERT_EQ(policy.explain(slot, now_ns).rank, static_cast<std::uint64_t>(place));
          }
        }
      }
      ASSERT_EQ(policy.size(), naive.objects.size());
    }
  }
}

}  // namespace
}  // namespace entrepot
