// Access pattern of a set, inferred from its reads: in order of sealing (scan), repeatedly so (loop), or random.
//
// Evidence is a log-odds score: a step forward counts for a scan (a scan takes 19 of 20 steps forward, a random reader
// every second one), a step back against it. A step back to where the scan began is a new pass, and indicates a loop.
#pragma once

#include <array>
#include <cstdint>

#include "shm/locality.h"

namespace entrepot {

class AccessPattern {
 public:
  // `order`: the object's position in the order of sealing. Scans of up to four readers are distinguished.
  void touch(std::uint32_t order, std::uint32_t reader, std::uint64_t now_ns);

  // kUnknown (too few reads), kSequential, kLoopSequential or kRandom.
  [[nodiscard]] ReadPattern reading() const;
  [[nodiscard]] std::uint32_t passes() const { return passes_; }
  // Of a loop: from the start of one pass to the start of the next; 0 if no pass has ended yet.
  [[nodiscard]] std::uint64_t period_ns() const { return period_ns_; }

 private:
  struct Scan {
    std::uint32_t reader = 0;
    std::uint32_t first = 0;  // of the pass
    std::uint32_t last = 0;
    std::uint32_t steps = 0;  // forward, in this pass
    bool used = false;
  };
  Scan& scan_of(std::uint32_t reader, bool& fresh);
  void begin_pass(std::uint64_t now_ns);

  std::array<Scan, 4> scans_;
  std::uint32_t next_scan_ = 0;
  std::uint32_t lowest_ = 0xffff'ffffU;  // of all objects ever touched
  std::uint32_t highest_ = 0;
  std::uint32_t passes_ = 0;  // begun after the first
  float evidence_ = 0;
  bool scanning_ = false;
  std::uint64_t pass_ns_ = 0;
  std::uint64_t period_ns_ = 0;
};

}  // namespace entrepot
