#include "store/eviction/eviction_cost.h"

#include <algorithm>
#include <cmath>

namespace entrepot {
namespace {

constexpr double kShortestNs = 1e6;     // shorter times are treated as a millisecond
constexpr double kForeverNs = 3600e9;   // minimum remaining life of objects that are kept forever
constexpr double kShortLived = 0.25;    // factor on the life of objects that are replaced at random
constexpr double kRandomPenalty = 1.5;  // an unpredictable read has to be waited for; a scan is read ahead
constexpr double kReadingNow = 4.0;     // the set is declared as being read
constexpr double kWritingNow = 0.5;     // ... as being written: new objects are not read yet
constexpr double kFinishedScan = 0.25;  // probability that a set scanned once is scanned again

bool is_declared(const SetAttributes& attributes) { return attributes.reading != ReadPattern::kUnknown; }

// Expected reads per second.
double reuse_rate(const CostInput& in) {
  const double idle = std::max(static_cast<double>(in.idle_ns), kShortestNs);
  const double span = std::max({static_cast<double>(in.period_ns), idle, kShortestNs});
  switch (in.reading) {
    case ReadPattern::kOnce:
      return in.was_read ? 0 : 1e9 / idle;
    case ReadPattern::kSequential: {
      const double age = std::max(static_cast<double>(in.set_age_ns), idle);
      return in.was_read ? kFinishedScan * 1e9 / age : 1e9 / idle;
    }
    case ReadPattern::kLoopSequential: {
      // The next read comes one pass after the last; until a pass was seen, the set's age is used.
      const double period =
          in.period_ns != 0 ? static_cast<double>(in.period_ns) : std::max(static_cast<double>(in.set_age_ns), idle);
      if (!in.was_read) return 1e9 / std::max(idle, period / 2);
      return 1e9 / std::max(period - idle, std::max(period / 8, span / 8));
    }
    case ReadPattern::kUnknown:
    case ReadPattern::kRandom:
      break;
  }
  return 1e9 / idle;
}

}  // namespace

CostTerms expected_cost(const EvictionCosts& costs, const CostInput& in) {
  const SetAttributes& attributes = *in.attributes;
  const auto bytes = static_cast<double>(std::max<std::uint64_t>(in.bytes, 1));
  double life = std::max(static_cast<double>(in.age_ns), kShortestNs);  // expected to live as long again
  // An object whose scan is finished frees its memory for good, not only for its remaining life.
  const bool finished = in.was_read && (in.reading == ReadPattern::kOnce || in.reading == ReadPattern::kSequential);
  if (finished) life = std::max(life, static_cast<double>(in.set_age_ns));
  if (attributes.lifetime == Lifetime::kForever) life = std::max(life, kForeverNs);
  if (attributes.writing == WritePattern::kRandom) life *= kShortLived;

  CostTerms terms;
  terms.reads_a_second = reuse_rate(in);
  if (attributes.operation == Operation::kReading) terms.reads_a_second *= kReadingNow;
  if (attributes.operation == Operation::kWriting && !in.was_read) terms.reads_a_second *= kWritingNow;
  const double weight = std::pow(4.0, attributes.priority + in.priority) / bytes;
  // With write-through, it is written anyway.
  if (!in.clean && attributes.durability == Durability::kWriteBack) {
    terms.write = weight * (costs.write_ns + costs.write_ns_per_byte * bytes) * 1e9 / life;
  }
  const bool scanned = in.reading == ReadPattern::kSequential || in.reading == ReadPattern::kLoopSequential;
  terms.read = weight * (costs.read_ns + costs.read_ns_per_byte * bytes) * terms.reads_a_second *
               (scanned ? 1.0 : kRandomPenalty);
  terms.total = terms.write + terms.read;
  // A copy exists, or is wanted by the user: dropping would save nothing.
  const bool wants_copy =
      in.clean || attributes.durability == Durability::kWriteThrough || attributes.lifetime == Lifetime::kForever;
  if (in.recompute_ns > 0 && !wants_copy) {
    terms.recompute = weight * in.recompute_ns * terms.reads_a_second;
    terms.would_drop = terms.recompute < terms.total;
    terms.total = std::min(terms.total, terms.recompute);
  }
  return terms;
}

bool evicts_newest_first(const SetAttributes& attributes, ReadPattern reading, bool was_read) {
  if (attributes.replacement != Replacement::kDataAware) return attributes.replacement == Replacement::kMru;
  if (reading == ReadPattern::kLoopSequential && was_read) return true;
  // In a set still to be scanned, the newest is needed last. This applies only to declared scans, because a pipeline
  // that reads each object soon after it was put looks like one.
  const bool scanned =
      reading == ReadPattern::kOnce || reading == ReadPattern::kSequential || reading == ReadPattern::kLoopSequential;
  return scanned && !was_read && is_declared(attributes);
}

}  // namespace entrepot
