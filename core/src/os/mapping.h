// Mapping: owns a range of mapped memory. Free functions make memory warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace entrepot::os {

enum class Access : std::uint8_t {
  kReadOnly,
  kReadWrite,
  kCopyOnWrite,  // writable, private: the kernel copies a page when it is written; the file stays as it is
};

class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Maps [offset, offset + bytes) of `fd`, shared (or private for kCopyOnWrite). `offset` is a multiple of the page
  // size; `align` (0: page size) is wished for the address, e.g. 2 MiB so that huge pages fit. The descriptor may be
  // closed afterwards.
  [[nodiscard]] static Result<Mapping> map(int fd, std::uint64_t offset, std::uint64_t bytes, Access access,
                                           std::uint64_t align = 0);
  // Zeroed memory of this process alone, without pages until touched.
  [[nodiscard]] static Result<Mapping> anonymous(std::uint64_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool valid() const { return data_ != nullptr; }
  [[nodiscard]] bool contains(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return data_ != nullptr && at >= data_ && at < data_ + bytes_;
  }

  // Page-aligned part of the mapping. After protect_read_only a write is SIGSEGV.
  [[nodiscard]] Status protect_read_only(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] Status protect_read_write(std::uint64_t offset, std::uint64_t bytes);

  // The child of a fork does not have this mapping at all (touching it there is SIGSEGV).
  [[nodiscard]] Status dont_fork();

  void reset();       // unmaps
  std::byte* leak();  // stays mapped for the rest of the process; returns its address

 private:
  Mapping(std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Faults in [data, data + bytes) of a writable shared mapping, page by page; reports lack of memory as kStoreFull
// instead of SIGBUS. kUnsupportedType where the kernel cannot (before 5.14).
[[nodiscard]] Status populate_write(std::byte* data, std::uint64_t bytes);
// The same for reading: fills the page tables of a reader ahead of use. Best effort.
[[nodiscard]] Status populate_read(std::byte* data, std::uint64_t bytes);

inline constexpr std::uint64_t kHugePageBytes = 2U << 20;

// Makes huge pages of a range of a writable shared mapping; `data` and `bytes` are multiples of 2 MiB. Touches a byte
// of each 2 MiB that is to have one (it writes the value that is there, atomically). Best effort: false if the kernel
// refused any of it (then use populate_write); the contents stay what they were in any case.
[[nodiscard]] Result<bool> collapse(std::byte* data, std::uint64_t bytes);

}  // namespace entrepot::os
