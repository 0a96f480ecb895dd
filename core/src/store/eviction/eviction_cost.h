// Expected cost of evicting an object, by which eviction ranks. Derived in docs/eviction.md.
//
//   cost = ( cost of writing / remaining life  +  reads per second x cost of reading back ) / size
//
// A recomputable object may be dropped instead, which costs no write, but a recomputation with each read:
//
//   cost = reads per second x time to recompute / size
//
// Such an object leaves in the cheaper of the two ways, and is ranked by that. Over its remaining life the comparison
// is: is (expected reads x time to recompute) less than the cost of writing it once and reading it back as often?
//
// This is Pangea's cost (VLDB 2019) divided by its horizon: there, the cost of writing plus the probability of reuse
// within a horizon t, 1 - exp(-lambda t), times the cost of reading; over a remaining life t the write is paid once,
// the read each time the object is read.
#pragma once

#include <cstdint>

#include "shm/locality.h"

namespace entrepot {

// Cost of writing or reading one object: a fixed part per operation and a part per byte.
struct EvictionCosts {
  double write_ns_per_byte = 1.0;
  double read_ns_per_byte = 1.0;
  double write_ns = 100'000;
  double read_ns = 100'000;
};

struct CostInput {
  const SetAttributes* attributes = nullptr;
  ReadPattern reading = ReadPattern::kUnknown;  // declared or inferred
  std::uint64_t period_ns = 0;                  // of a pass over the set; 0: none seen
  std::uint64_t set_age_ns = 0;                 // since its first object was admitted
  std::uint64_t bytes = 0;
  std::uint64_t idle_ns = 0;  // since the last use
  std::uint64_t age_ns = 0;   // since it became resident
  bool was_read = false;
  bool clean = false;
  int priority = 0;         // the object's own
  double recompute_ns = 0;  // time to recompute it; 0: not recomputable
};

struct CostTerms {
  double total = 0;  // nanoseconds of I/O per second of absence per byte
  double write = 0;  // components of `total`
  double read = 0;
  double reads_a_second = 0;
  bool would_drop = false;  // recomputing is cheaper than `write` plus `read`
  double recompute = 0;     // cost of dropping it instead, if it is recomputable
};

[[nodiscard]] CostTerms expected_cost(const EvictionCosts& costs, const CostInput& input);

// Which end of a list goes first: the newest if it will be read again last (a loop), otherwise the oldest.
[[nodiscard]] bool evicts_newest_first(const SetAttributes& attributes, ReadPattern reading, bool was_read);

}  // namespace entrepot
