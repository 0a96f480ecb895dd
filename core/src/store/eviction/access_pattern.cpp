#include "store/eviction/access_pattern.h"

#include <algorithm>

namespace entrepot {
namespace {

constexpr float kForward = 0.64F;     // ln(0.95 / 0.5)
constexpr float kBackward = -2.30F;   // ln(0.05 / 0.5)
constexpr float kMaxEvidence = 6.0F;  // bounds the evidence: a change of pattern is detected within a dozen reads
constexpr float kScan = 3.0F;         // five steps forward and none back
constexpr float kRandom = -1.0F;

}  // namespace

AccessPattern::Scan& AccessPattern::scan_of(std::uint32_t reader, bool& fresh) {
  for (Scan& scan : scans_) {
    if (scan.used && scan.reader == reader) return scan;
  }
  Scan& scan = scans_[next_scan_];
  next_scan_ = (next_scan_ + 1) % static_cast<std::uint32_t>(scans_.size());
  scan = {reader, 0, 0, 0, true};
  fresh = true;
  return scan;
}

void AccessPattern::begin_pass(std::uint64_t now_ns) {
  ++passes_;
  if (pass_ns_ != 0 && now_ns > pass_ns_) {
    const std::uint64_t period = now_ns - pass_ns_;
    period_ns_ = period_ns_ == 0 ? period : (period_ns_ + period) / 2;
  }
  pass_ns_ = now_ns;
}

void AccessPattern::touch(std::uint32_t order, std::uint32_t reader, std::uint64_t now_ns) {
  if (pass_ns_ == 0) pass_ns_ = now_ns;
  const bool near_begin = lowest_ <= highest_ && order <= lowest_ + (highest_ - lowest_) / 8;
  bool fresh = false;
  Scan& scan = scan_of(reader, fresh);
  if (fresh) {
    scan.first = order;
    // A new reader that begins where the others began: the next pass, by another reader.
    if (scanning_ && near_begin && highest_ > lowest_) begin_pass(now_ns);
  } else if (order > scan.last) {
    evidence_ = std::min(evidence_ + kForward, kMaxEvidence);
    ++scan.steps;
  } else if (order < scan.last) {
    const std::uint32_t begin = scan.first + (scan.last - std::min(scan.first, scan.last)) / 8;
    // Back at the start of a run of forward steps: a loop too short to be detected as a scan.
    const bool short_loop = order == scan.first && scan.steps >= 2;
    if (short_loop || (scanning_ && (order <= begin || near_begin))) {
      begin_pass(now_ns);
    } else {
      evidence_ = std::max(evidence_ + kBackward, -kMaxEvidence);
    }
    scan.first = order;
    scan.steps = 0;
  }
  scan.last = order;
  lowest_ = std::min(lowest_, order);
  highest_ = std::max(highest_, order);
  if (evidence_ >= kScan) scanning_ = true;
  if (evidence_ < 0) {
    scanning_ = false;
    passes_ = 0;
    period_ns_ = 0;
  }
}

ReadPattern AccessPattern::reading() const {
  if (scanning_) return passes_ != 0 ? ReadPattern::kLoopSequential : ReadPattern::kSequential;
  return evidence_ <= kRandom ? ReadPattern::kRandom : ReadPattern::kUnknown;
}

}  // namespace entrepot
