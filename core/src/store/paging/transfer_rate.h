// Throughput of the spill backend, measured while it is busy.
//
// Transfers overlap, so individual durations are not added up; busy time runs from the start of a transfer while idle
// until none is in flight. Guarded by the daemon's thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace entrepot {

class TransferRate {
 public:
  void begin(std::uint64_t now_ns) {
    if (in_flight_++ == 0) since_ns_ = now_ns;
  }
  // `bytes` 0: the transfer failed and is not measured.
  void end(std::uint64_t now_ns, std::uint64_t bytes) {
    --in_flight_;
    const std::uint64_t elapsed_ns = now_ns > since_ns_ ? now_ns - since_ns_ : 0;
    since_ns_ = now_ns;
    if (bytes == 0) return;
    busy_ns_ += elapsed_ns;
    bytes_ += bytes;
    if (bytes_ < kSampleBytes) return;
    const double now = std::clamp(static_cast<double>(busy_ns_) / static_cast<double>(bytes_), kFastest, kSlowest);
    ns_per_byte_ = samples_++ == 0 ? now : ns_per_byte_ + kWeight * (now - ns_per_byte_);
    busy_ns_ = 0;
    bytes_ = 0;
  }
  // 1 GB/s until something was measured.
  [[nodiscard]] double ns_per_byte() const { return ns_per_byte_; }

 private:
  static constexpr std::uint64_t kSampleBytes = 4U << 20;
  static constexpr double kWeight = 0.3;    // of the newest sample in the running mean
  static constexpr double kFastest = 0.05;  // 20 GB/s
  static constexpr double kSlowest = 1000;  // 1 MB/s

  std::uint32_t in_flight_ = 0;
  std::uint32_t samples_ = 0;
  std::uint64_t since_ns_ = 0;
  std::uint64_t busy_ns_ = 0;
  std::uint64_t bytes_ = 0;
  double ns_per_byte_ = 1.0;
};

}  // namespace entrepot
