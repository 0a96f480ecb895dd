// Benefit of the policy: bytes that a store of limited memory writes and reads back, compared to LRU on the same
// accesses.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "store/eviction/eviction_policy.h"
#include "store/units.h"

namespace entrepot {
namespace {

using testing::kMiB;

// A spilling store in simulation: each access takes a millisecond, and so does each MiB moved.
class Simulation {
 public:
  Simulation(Replacement everywhere, std::uint64_t capacity) : policy_(everywhere), capacity_(capacity) {}

  EvictionPolicy& policy() { return policy_; }
  std::uint32_t put(std::uint32_t set, std::uint64_t bytes) {
    objects_.push_back({set, bytes, false, false, false});
    const auto slot = static_cast<std::uint32_t>(objects_.size() - 1);
    bring(slot);
    return slot;
  }
  void read(std::uint32_t slot) {
    Object& object = objects_[slot];
    if (!object.resident) {
      bring(slot);
      move(object.bytes);
      read_bytes_ += object.bytes;
      policy_.set_clean(slot, true);
    }
    policy_.touch(slot, now_ns_);
    now_ns_ += 1'000'000;
  }
  void die(std::uint32_t slot) {
    objects_[slot].dead = true;
    policy_.set_dead(slot, true);
  }
  [[nodiscard]] std::uint64_t moved() const { return written_bytes_ + read_bytes_; }
  [[nodiscard]] std::uint64_t written() const { return written_bytes_; }
  [[nodiscard]] std::uint64_t reread() const { return read_bytes_; }
  [[nodiscard]] bool resident(std::uint32_t slot) const { return objects_[slot].resident; }

 private:
  struct Object {
    std::uint32_t set;
    std::uint64_t bytes;
    bool on_disk;
    bool resident;
    bool dead;
  };
  void move(std::uint64_t bytes) { now_ns_ += bytes * 1'000'000 / kMiB; }
  void bring(std::uint32_t slot) {
    Object& object = objects_[slot];
    if (used_ + object.bytes > capacity_) {
      const auto victims =
          policy_.victims(used_ + object.bytes - capacity_, now_ns_, [](std::uint32_t) { return true; });
      for (const std::uint32_t victim : victims)
        evict(victim);
    }
    ASSERT_LE(used_ + object.bytes, capacity_);
    used_ += object.bytes;
    object.resident = true;
    now_ns_ += 1'000'000;
    policy_.admit(slot, object.set, object.bytes, now_ns_, slot + 1);
  }
  void evict(std::uint32_t slot) {
    Object& object = objects_[slot];
    ASSERT_TRUE(object.resident);
    if (!object.on_disk && !object.dead) {
      written_bytes_ += object.bytes;
      move(object.bytes);
      object.on_disk = true;
    }
    object.resident = false;
    used_ -= object.bytes;
    policy_.forget(slot);
  }

  EvictionPolicy policy_;
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
  std::vector<Object> objects_;
};

double ratio(std::uint64_t lru, std::uint64_t ours) {
  return static_cast<double>(lru) / static_cast<double>(std::max<std::uint64_t>(ours, 1));
}

// Puts `count` objects, twice what memory holds, then runs `passes` scans.
Simulation scan(Replacement everywhere, ReadPattern declared, std::uint32_t count, int passes) {
  Simulation simulation(everywhere, count / 2 * kMiB);
  SetAttributes attributes;
  attributes.reading = declared;
  simulation.policy().define(1, attributes);
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < count; ++i)
    slots.push_back(simulation.put(1, kMiB));
  for (int pass = 0; pass < passes; ++pass) {
    for (const std::uint32_t slot : slots)
      simulation.read(slot);
  }
  return simulation;
}

TEST(EvictionSimulation, ADeclaredLoopOverTwiceTheMemoryMovesLittleMoreThanHalfOfLru) {
  for (const std::uint32_t count : {8U, 200U, 2000U}) {
    const auto lru = scan(Replacement::kLru, ReadPattern::kLoopSequential, count, 10);
    const auto ours = scan(Replacement::kDataAware, ReadPattern::kLoopSequential, count, 10);
    std::printf("loop of %u, declared: LRU %llu, data-aware %llu MiB: %.2f\n", count,
                static_cast<unsigned long long>(lru.moved() / kMiB),
                static_cast<unsigned long long>(ours.moved() / kMiB), ratio(lru.moved(), ours.moved()));
    EXPECT_GE(ratio(lru.moved(), ours.moved()), count == 8 ? 1.6 : 1.8);
  }
}

TEST(EvictionSimulation, ALoopIsRecognisedWithoutBeingDeclared) {
  for (const std::uint32_t count : {8U, 200U, 2000U}) {
    const auto lru = scan(Replacement::kLru, ReadPattern::kUnknown, count, 10);
    const auto ours = scan(Replacement::kDataAware, ReadPattern::kUnknown, count, 10);
    std::printf("loop of %u, inferred: LRU %llu, data-aware %llu MiB: %.2f\n", count,
                static_cast<unsigned long long>(lru.moved() / kMiB),
                static_cast<unsigned long long>(ours.moved() / kMiB), ratio(lru.moved(), ours.moved()));
    EXPECT_GE(ratio(lru.moved(), ours.moved()), count == 8 ? 1.45 : 1.8);
  }
}

TEST(EvictionSimulation, RandomAccessIsNotWorseThanLru) {
  for (const double skew : {0.0, 0.6, 0.99, 1.2}) {
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      std::uint64_t moved[2] = {};
      int at = 0;
      for (const Replacement everywhere : {Replacement::kLru, Replacement::kDataAware}) {
        constexpr std::uint32_t kCount = 1000;
        Simulation simulation(everywhere, kCount / 2 * kMiB);
        std::vector<double> weights;
        for (std::uint32_t i = 0; i < kCount; ++i)
          weights.push_back(1 / std::pow(i + 1.0, skew));
        std::mt19937 random(seed);
        std::shuffle(weights.begin(), weights.end(), random);
        std::vector<std::uint32_t> slots;
        for (std::uint32_t i = 0; i < kCount; ++i)
          slots.push_back(simulation.put(1, kMiB));
        std::discrete_distribution<std::uint32_t> pick(weights.begin(), weights.end());
        for (int i = 0; i < 20'000; ++i)
          simulation.read(slots[pick(random)]);
        moved[at++] = simulation.moved();
      }
      std::printf("random, skew %.2f, seed %u: LRU %llu, data-aware %llu MiB: %.3f\n", skew, seed,
                  static_cast<unsigned long long>(moved[0] / kMiB), static_cast<unsigned long long>(moved[1] / kMiB),
                  ratio(moved[0], moved[1]));
      EXPECT_GE(ratio(moved[0], moved[1]), 0.97);
    }
  }
}

// 100 hot objects read at random, while a stream of three times the memory passes, each object read once.
TEST(EvictionSimulation, AStreamReadOnceDoesNotPushOutTheHotSet) {
  for (const ReadPattern declared : {ReadPattern::kOnce, ReadPattern::kUnknown}) {
    std::uint64_t moved[2] = {};
    std::uint64_t reread[2] = {};
    int at = 0;
    for (const Replacement everywhere : {Replacement::kLru, Replacement::kDataAware}) {
      Simulation simulation(everywhere, 150 * kMiB);
      SetAttributes stream;
      stream.reading = declared;
      simulation.policy().define(2, stream);
      std::vector<std::uint32_t> hot;
      for (int i = 0; i < 100; ++i)
        hot.push_back(simulation.put(1, kMiB));
      std::mt19937 random(7);
      for (int i = 0; i < 2000; ++i) {
        const std::uint32_t passing = simulation.put(2, kMiB);
        simulation.read(passing);
        simulation.read(hot[random() % hot.size()]);
      }
      reread[at] = simulation.reread();
      moved[at++] = simulation.moved();
    }
    std::printf("stream %s: LRU reads back %llu, data-aware %llu MiB; moved %llu and %llu\n",
                declared == ReadPattern::kOnce ? "declared" : "inferred",
                static_cast<unsigned long long>(reread[0] / kMiB), static_cast<unsigned long long>(reread[1] / kMiB),
                static_cast<unsigned long long>(moved[0] / kMiB), static_cast<unsigned long long>(moved[1] / kMiB));
    EXPECT_GT(reread[0], 500 * kMiB);  // control: LRU does lose the hot set
    EXPECT_LT(reread[1], reread[0] / 5);
    EXPECT_LT(moved[1], moved[0]);
  }
}

// A loop, a random set, and a stream whose objects are dead after one read, all together.
TEST(EvictionSimulation, MixedSetsTogetherMoveLessThanLru) {
  for (const bool declare : {true, false}) {
    std::uint64_t moved[2] = {};
    int at = 0;
    for (const Replacement everywhere : {Replacement::kLru, Replacement::kDataAware}) {
      Simulation simulation(everywhere, 400 * kMiB);
      if (declare) {
        SetAttributes attributes;
        attributes.reading = ReadPattern::kLoopSequential;
        simulation.policy().define(1, attributes);
        attributes.reading = ReadPattern::kRandom;
        simulation.policy().define(2, attributes);
        attributes.reading = ReadPattern::kOnce;
        simulation.policy().define(3, attributes);
      }
      std::vector<std::uint32_t> loop;
      std::vector<std::uint32_t> shuffled;
      for (int i = 0; i < 400; ++i)
        loop.push_back(simulation.put(1, kMiB));
      for (int i = 0; i < 200; ++i)
        shuffled.push_back(simulation.put(2, kMiB));
      std::mt19937 random(11);
      for (int i = 0; i < 4000; ++i) {
        simulation.read(loop[static_cast<std::size_t>(i) % loop.size()]);
        simulation.read(shuffled[random() % shuffled.size()]);
        const std::uint32_t passing = simulation.put(3, kMiB);
        simulation.read(passing);
        simulation.die(passing);
      }
      moved[at++] = simulation.moved();
    }
    std::printf("mixed, %s: LRU %llu, data-aware %llu MiB: %.2f\n", declare ? "declared" : "inferred",
                static_cast<unsigned long long>(moved[0] / kMiB), static_cast<unsigned long long>(moved[1] / kMiB),
                ratio(moved[0], moved[1]));
    EXPECT_GE(ratio(moved[0], moved[1]), 1.3);
  }
}

}  // namespace
}  // namespace entrepot
