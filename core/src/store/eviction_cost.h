// What it is expected to cost that an object leaves memory: the term by which eviction ranks. docs/eviction.md derives
// it.
//
//   cost = ( cost of writing / remaining life  +  reads a second x cost of reading back ) / size
//
// What can be made again may be dropped instead, which costs no writing, and the making with each read:
//
//   cost = reads a second x time of making it again / size
//
// It leaves in the cheaper of the two ways, and ranks by that. Over its remaining life both are the same question: is
// the number of expected reads times the time of making it again less than writing it once, and reading it back as
// often?
//
// It is Pangea's cost (VLDB 2019) divided by its horizon: there the cost of writing plus the probability of reuse
// within a horizon t, 1 - exp(-lambda t), times the cost of reading; over a remaining life t the writing is paid once,
// the reading each time the object is read.
#pragma once

#include <cstdint>

#include "shm/locality.h"

namespace entrepot {

// What it takes to write or read one object: an operation's own time and its bytes' share.
struct EvictionCosts {
  double write_ns_per_byte = 1.0;
  double read_ns_per_byte = 1.0;
  double write_ns = 100'000;
  double read_ns = 100'000;
};

struct CostInput {
  const SetAttributes* attributes = nullptr;
  Reading reading = Reading::kUnknown;  // declared or inferred
  std::uint64_t period_ns = 0;          // of a pass over the set, 0: none was seen
  std::uint64_t set_age_ns = 0;         // since its first object came
  std::uint64_t bytes = 0;
  std::uint64_t idle_ns = 0;  // since the last use
  std::uint64_t age_ns = 0;   // since it became resident
  bool was_read = false;
  bool clean = false;
  int priority = 0;         // the object's own
  double recompute_ns = 0;  // to make it again; 0: it cannot be
};

struct CostTerms {
  double total = 0;  // nanoseconds of I/O a second of absence and byte
  double write = 0;  // the parts of it
  double read = 0;
  double reads_a_second = 0;
  bool drops = false;    // making it again is cheaper than the first two
  double recompute = 0;  // what dropping it costs instead, where it can be made again
};

[[nodiscard]] CostTerms expected_cost(const EvictionCosts& costs, const CostInput& input);

// Which end of a list goes first: the newest of what comes round again last, else the oldest.
[[nodiscard]] bool newest_goes_first(const SetAttributes& attributes, Reading reading, bool was_read);

}  // namespace entrepot
