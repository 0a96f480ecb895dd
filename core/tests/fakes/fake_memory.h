// Process-local fake of shared memory: the classes of the shm layer over anonymous memory, so that their logic runs
// under AddressSanitizer and ThreadSanitizer, which cannot see through mappings shared by two processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "shm/blobs.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/extent_allocator.h"
#include "shm/index.h"
#include "shm/pins.h"
#include "shm/record_arena.h"
#include "shm/segment_table.h"

namespace entrepot::testing {

// Returns an ID derived from `number`.
[[nodiscard]] IdBytes numbered_id(std::uint64_t number);
[[nodiscard]] InstanceId numbered_instance(std::uint8_t number);

// The daemon's tables and a client's view of them in one process. A setup failure ends the test program.
struct FakeStore {
  explicit FakeStore(const std::map<RegionKind, std::uint64_t>& capacities = {});

  // Seals an empty object in the directory and the index. Returns its slot.
  std::uint32_t seal(const IdBytes& id);
  // Publishes a new generation of `id` in another slot and marks the old slot deleting. Returns the new slot.
  std::uint32_t replace(const IdBytes& id, std::uint32_t old_slot);
  // Unlinks the object and marks its slot deleting. Free the slot with directory.free(slot).
  void unlink(const IdBytes& id, std::uint32_t slot);

  ControlMemory memory;
  ControlView view;
  DirectoryWriter directory;
  IndexWriter index;
  DirectoryReader reader;
};

// A segment's payload and its allocator. Under AddressSanitizer, free memory is poisoned: an access ends the test with
// a report of the offending code.
class FakeSegment {
 public:
  explicit FakeSegment(std::uint64_t bytes);
  ~FakeSegment();
  FakeSegment(const FakeSegment&) = delete;
  FakeSegment& operator=(const FakeSegment&) = delete;

  [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t align = kBlobAlign);
  [[nodiscard]] Status free(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] std::byte* at(std::uint64_t offset) { return memory_.data() + offset; }
  [[nodiscard]] const ExtentAllocator& extents() const { return extents_; }

 private:
  os::Mapping memory_;
  ExtentAllocator extents_;
};

}  // namespace entrepot::testing
