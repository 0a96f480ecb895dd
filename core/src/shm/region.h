// Region: one part of the control memory, a memfd with a checked header. See shm/layout.h for the contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/mapping.h"
#include "os/unique_fd.h"
#include "shm/layout.h"
#include "shm/memory_budget.h"

namespace entrepot {

// Estimate of the daemon's own memory (indexes, lists, states) for `entries_bytes` of entries of this kind in use. The
// estimates are a little more than what tests/core/test_budget.py measures.
[[nodiscard]] std::uint64_t daemon_heap_bytes(RegionKind kind, std::uint64_t entries_bytes);

[[nodiscard]] std::string_view region_name(RegionKind kind);  // "slots"
[[nodiscard]] std::uint64_t region_entry_bytes(RegionKind kind);
[[nodiscard]] std::uint64_t region_default_capacity(RegionKind kind);

// Guarded by the daemon's thread (writable regions), or immutable after attach (read-only ones). Movable; addresses of
// entries stay the same.
class Region {
 public:
  static constexpr std::uint64_t kGrowBytes = 64U << 10;  // the step in which tables grow and shrink

  Region() = default;

  // Creates a region in a memfd and writes its header. `capacity` in entries (bytes for records); 0: the kind's
  // default.
  [[nodiscard]] static Result<Region> create(RegionKind kind, const InstanceId& instance, std::uint64_t capacity = 0);
  // Adopts a region of an earlier daemon: maps it writable and checks its header. `instance` empty: accepts any (used
  // for the root, which tells it). kVersionMismatch for another layout or ABI, kCorruptData for a bad checksum, magic,
  // kind, capacity or size, kInvalidReference for another instance.
  [[nodiscard]] static Result<Region> adopt(UniqueFd fd, RegionKind kind, const std::optional<InstanceId>& instance);
  // The client's side: the same checks, mapped read-only.
  [[nodiscard]] static Result<Region> attach_read_only(UniqueFd fd, RegionKind kind,
                                                       const std::optional<InstanceId>& instance);
  // Uses process-private memory with the same header and checks, for tests under sanitizers. `private_view` returns a
  // second, read-only Region over the same memory, which must stay mapped while the view lives.
  [[nodiscard]] static Result<Region> create_private(RegionKind kind, const InstanceId& instance,
                                                     std::uint64_t capacity);
  [[nodiscard]] Result<Region> private_view() const;

  [[nodiscard]] bool valid() const { return base_ != nullptr; }
  [[nodiscard]] RegionKind kind() const { return header()->kind; }
  [[nodiscard]] const InstanceId& instance() const { return header()->instance; }
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }  // entries (bytes for records)
  [[nodiscard]] std::uint64_t entries_bytes() const { return entries_bytes_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // -1 for private memory
  [[nodiscard]] const RegionHeader* header() const { return reinterpret_cast<const RegionHeader*>(base_); }
  [[nodiscard]] RegionMarks& marks() const { return *reinterpret_cast<RegionMarks*>(base_ + sizeof(RegionHeader)); }

  [[nodiscard]] std::byte* entries() const { return base_ + kRegionHeaderBytes; }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(entries());
  }

  // Returns a read-only descriptor to send to a client. kInvalidArgument for private memory.
  [[nodiscard]] Result<UniqueFd> read_only_fd() const;

  // Charges its memory to the budget, and asks the budget before it grows. The budget must outlive the last growth.
  // With it goes the memory that the daemon itself needs for the entries.
  void charge_to(MemoryBudget& budget);
  [[nodiscard]] std::uint64_t resident_bytes() const;  // existing pages, including the header's

  // Reserves pages for the first `bytes` of the entries (invariant: memory is reserved before it is used). Remembers
  // how far it got, so that repeated calls are cheap. kStoreFull if there is no memory, kInvalidArgument beyond the
  // capacity.
  [[nodiscard]] Status ensure(std::uint64_t bytes);
  // The same for any range of the entries; remembers nothing.
  [[nodiscard]] Status ensure_range(std::uint64_t offset, std::uint64_t bytes);
  // Returns the pages of a range to the system; it reads as zeros afterwards.
  [[nodiscard]] Status discard_range(std::uint64_t offset, std::uint64_t bytes);
  // Returns what ensure() reserved beyond the first `bytes` to the system, in the steps in which it grows. Returns the
  // number of bytes.
  [[nodiscard]] Result<std::uint64_t> shrink(std::uint64_t bytes);

 private:
  static Result<Region> open(UniqueFd fd, RegionKind kind, const std::optional<InstanceId>& instance,
                             os::Access access);
  [[nodiscard]] std::uint64_t missing_bytes(std::uint64_t offset, std::uint64_t bytes) const;  // upper bound
  void mark_pages(std::uint64_t offset, std::uint64_t bytes, bool resident);
  Status check(std::uint64_t file_bytes, RegionKind kind, const std::optional<InstanceId>& instance);

  UniqueFd fd_;
  os::Mapping mapping_;  // empty for a private view
  std::byte* base_ = nullptr;
  std::uint64_t capacity_ = 0;  // checked copies: the header is not trusted again
  std::uint64_t entries_bytes_ = 0;
  MemoryBudget* budget_ = nullptr;
  std::vector<bool> pages_;  // pages in use, for private memory, where no kernel counts them
  std::uint64_t private_bytes_ = 0;
};

}  // namespace entrepot
