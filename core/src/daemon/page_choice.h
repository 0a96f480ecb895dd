// Page choice: huge pages or small ones, for memory that somebody waits for.
//
//   huge ──a step of huge pages was slow, and small ones are not known to be slower──▶ small
//   small ──a step of small pages was slower than the latest of huge ones──▶ huge
//
// In a virtual machine, the host takes back what the guest leaves free in large blocks, and needs milliseconds to provide
// 2 MiB again. Huge pages are such blocks; small pages mostly come from fragments that the host has left alone.
#pragma once

#include <cstdint>

#include "os/mapping.h"

namespace entrepot {

class PageChoice {
 public:
  static constexpr std::uint64_t kSlowNs = 1'000'000;  // for 2 MiB; of memory at hand they take 0.1 to 0.5 ms

  explicit PageChoice(std::uint64_t slow_ns = kSlowNs) : slow_ns_(slow_ns) {}

  [[nodiscard]] bool is_huge() const { return huge_ns_ <= slow_ns_ || small_ns_ >= huge_ns_; }
  void took_huge(std::uint64_t bytes, std::uint64_t ns) { huge_ns_ = per_huge_page(bytes, ns); }
  void took_small(std::uint64_t bytes, std::uint64_t ns) { small_ns_ = per_huge_page(bytes, ns); }

 private:
  static std::uint64_t per_huge_page(std::uint64_t bytes, std::uint64_t ns) {
    const std::uint64_t pages = bytes / os::kHugePageBytes;
    return pages == 0 ? 0 : ns / pages;
  }

  // Guarded by the thread that fills the memory.
  std::uint64_t slow_ns_;
  // Of the latest step, for 2 MiB; 0: none yet.
  std::uint64_t huge_ns_ = 0;
  std::uint64_t small_ns_ = 0;
};

}  // namespace entrepot
