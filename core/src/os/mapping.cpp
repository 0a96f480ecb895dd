#include "os/mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/text.h"
#include "os/error.h"
#include "os/memfd.h"

// Missing in Debian 12's C library headers.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace entrepot::os {

namespace {

int protection(Access access) { return access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE; }

// Returns an address with the preferred alignment where `bytes` fit, or null. Reserves and releases the range: mmap
// without MAP_FIXED takes the address as a hint, so losing a race against another thread only costs the alignment.
void* aligned_hint(std::uint64_t bytes, std::uint64_t align) {
  if (align <= page_bytes()) return nullptr;
  void* reserved = ::mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  ::munmap(reserved, bytes + align);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  return reinterpret_cast<void*>(round_up(address, align));
}

Status advise_all(std::byte* data, std::uint64_t bytes, int advice, std::string_view what) {
  while (::madvise(data, bytes, advice) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) {
      return Status(Code::kUnsupportedType, concat(what, " is not supported by this kernel for this mapping"));
    }
    // The kernel reports a fault that it could not serve as EFAULT; the reason is lack of memory.
    return errno_status(errno == EFAULT ? ENOMEM : errno, concat(what, " of ", format_bytes(bytes)));
  }
  return Status::ok();
}

bool advise_collapse(std::byte* data, std::uint64_t bytes) {
  bool interrupted = true;
  for (int attempt = 0; interrupted && attempt < 3; ++attempt) {
    if (::madvise(data, bytes, MADV_COLLAPSE) == 0) return true;
    interrupted = errno == EINTR || errno == EAGAIN;
  }
  return false;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Result<Mapping> Mapping::map(int fd, std::uint64_t offset, std::uint64_t bytes, Access access, std::uint64_t align) {
  if (bytes == 0 || offset % page_bytes() != 0) {
    return Status(Code::kInvalidArgument, concat("cannot map ", bytes, " bytes at offset ", offset));
  }
  const int sharing = access == Access::kCopyOnWrite ? MAP_PRIVATE : MAP_SHARED;
  void* address = ::mmap(aligned_hint(bytes, align), bytes, protection(access), sharing | MAP_NORESERVE, fd,
                         static_cast<off_t>(offset));
  if (address == MAP_FAILED) return errno_status(errno, concat("mapping ", format_bytes(bytes)));
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Result<Mapping> Mapping::anonymous(std::uint64_t bytes) {
  if (bytes == 0) return Status(Code::kInvalidArgument, "cannot map 0 bytes");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return errno_status(errno, concat("mapping ", format_bytes(bytes), " of private memory"));
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Status Mapping::protect_read_only(std::uint64_t offset, std::uint64_t bytes) {
  if (::mprotect(data_ + offset, bytes, PROT_READ) != 0) return errno_status(errno, "mprotect to read-only");
  return Status::ok();
}

Status Mapping::protect_read_write(std::uint64_t offset, std::uint64_t bytes) {
  if (::mprotect(data_ + offset, bytes, PROT_READ | PROT_WRITE) != 0) {
    return errno_status(errno, "mprotect to read-write");
  }
  return Status::ok();
}

Status Mapping::dont_fork() {
  if (::madvise(data_, bytes_, MADV_DONTFORK) != 0) return errno_status(errno, "madvise MADV_DONTFORK");
  return Status::ok();
}

Status Mapping::become_copy_on_write(int fd, std::uint64_t offset) {
  void* const address = ::mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                               static_cast<off_t>(offset));
  if (address == MAP_FAILED) return errno_status(errno, concat("mapping ", format_bytes(bytes_), " copy-on-write"));
  return Status::ok();
}

void Mapping::reset() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

std::byte* Mapping::leak() {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

Status populate_write(std::byte* data, std::uint64_t bytes) {
  return advise_all(data, bytes, MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE");
}

Status detach_from_file(std::byte* data, std::uint64_t bytes) {
  const Status populated = populate_write(data, bytes);
  if (populated.code() != Code::kUnsupportedType) return populated;
  for (std::uint64_t at = 0; at < bytes; at += page_bytes()) {  // kernels before 5.14
    std::atomic_ref<std::uint8_t>(*reinterpret_cast<std::uint8_t*>(data + at)).fetch_add(0, std::memory_order_relaxed);
  }
  return Status::ok();
}

Status populate_read(std::byte* data, std::uint64_t bytes) {
  return advise_all(data, bytes, MADV_POPULATE_READ, "MADV_POPULATE_READ");
}

Result<bool> collapse(std::byte* data, std::uint64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % kHugePageBytes != 0 || bytes % kHugePageBytes != 0) {
    return Status(Code::kInvalidArgument, concat("huge pages need an address and a length that are multiples of ",
                                                 format_bytes(kHugePageBytes), ", not ", bytes, " bytes"));
  }
  // The kernel refuses a range without any page. Atomically adding 0 creates one and loses no concurrent write.
  for (std::uint64_t at = 0; at < bytes; at += kHugePageBytes) {
    std::atomic_ref<std::uint8_t>(*reinterpret_cast<std::uint8_t*>(data + at)).fetch_add(0, std::memory_order_relaxed);
  }
  return advise_collapse(data, bytes);
}

bool collapse_populated(std::byte* data, std::uint64_t bytes) {
  std::vector<unsigned char> is_resident(bytes / page_bytes());
  if (::mincore(data, bytes, is_resident.data()) != 0) return false;
  const bool is_populated = std::ranges::all_of(is_resident, [](unsigned char flags) { return (flags & 1U) != 0; });
  return is_populated && advise_collapse(data, bytes);
}

}  // namespace entrepot::os
