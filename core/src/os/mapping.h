// Mapping: owns a range of mapped memory. Free functions populate pages ahead of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace entrepot::os {

enum class Access : std::uint8_t {
  kReadOnly,
  kReadWrite,
  kCopyOnWrite,  // writable and private: a written page is copied by the kernel; the file is unchanged
};

class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Maps [offset, offset + bytes) of `fd`, shared (or private for kCopyOnWrite). `offset` must be a multiple of the
  // page size; `align` (0: page size) is the preferred alignment of the address, e.g. 2 MiB for huge pages. The
  // descriptor may be closed afterwards.
  [[nodiscard]] static Result<Mapping> map(int fd, std::uint64_t offset, std::uint64_t bytes, Access access,
                                           std::uint64_t align = 0);
  // Zeroed process-private memory, without pages until touched.
  [[nodiscard]] static Result<Mapping> anonymous(std::uint64_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool valid() const { return data_ != nullptr; }
  [[nodiscard]] bool contains(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return data_ != nullptr && at >= data_ && at < data_ + bytes_;
  }

  // Protects a page-aligned part of the mapping. After protect_read_only, a write raises SIGSEGV.
  [[nodiscard]] Status protect_read_only(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] Status protect_read_write(std::uint64_t offset, std::uint64_t bytes);

  // Excludes this mapping from forked children (touching it there raises SIGSEGV).
  [[nodiscard]] Status dont_fork();

  // Replaces this shared mapping of `fd` from `offset` on by a copy-on-write one of the same bytes at the same address,
  // in one step for all threads: what was written before is in the file, what is written afterwards is private. A
  // forked child inherits it.
  [[nodiscard]] Status become_copy_on_write(int fd, std::uint64_t offset);

  void reset();       // unmaps
  std::byte* leak();  // stays mapped for the life of the process; returns its address

 private:
  Mapping(std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Faults in [data, data + bytes) of a writable shared mapping; reports lack of memory as kStoreFull instead of SIGBUS.
// kUnsupportedType on kernels before 5.14.
[[nodiscard]] Status populate_write(std::byte* data, std::uint64_t bytes);
// The same for reading: fills a reader's page tables ahead of use. Best effort.
[[nodiscard]] Status populate_read(std::byte* data, std::uint64_t bytes);

// Gives a copy-on-write mapping private pages of its own, whatever happens to the file afterwards; loses no write of
// another thread. kStoreFull if there is not enough memory.
[[nodiscard]] Status detach_from_file(std::byte* data, std::uint64_t bytes);

inline constexpr std::uint64_t kHugePageBytes = 2U << 20;

// Converts a range of a writable shared mapping to huge pages; `data` and `bytes` must be multiples of 2 MiB. Touches
// one byte of each 2 MiB (atomically rewrites its value). Best effort: false if the kernel refused any part (then use
// populate_write); the contents are unchanged in any case.
[[nodiscard]] Result<bool> collapse(std::byte* data, std::uint64_t bytes);
// The same only if all of its pages exist: where some were returned to the machine, they stay returned.
[[nodiscard]] bool collapse_populated(std::byte* data, std::uint64_t bytes);

}  // namespace entrepot::os
