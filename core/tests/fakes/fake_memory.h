// The process-local fake of shared memory: the classes of the room shm over anonymous memory, so that their logic runs
// under the address and thread sanitizers, which cannot see through mappings that two processes share.
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

// An ID that is the same for the same number.
[[nodiscard]] IdBytes numbered_id(std::uint64_t number);
[[nodiscard]] InstanceId numbered_instance(std::uint8_t number);

// The daemon's tables and a client's view of them, in one process. Failures to set up end the test program.
struct FakeStore {
  explicit FakeStore(const std::map<RegionKind, std::uint64_t>& capacities = {});

  // Seals an empty object of this ID in the directory and the index; its slot.
  std::uint32_t seal(const IdBytes& id);
  // Publishes a new life of `id` in another slot and marks the old one deleting; the new slot.
  std::uint32_t replace(const IdBytes& id, std::uint32_t old_slot);
  // Unlinks the object and marks its slot deleting; free it by directory.free(slot).
  void unlink(const IdBytes& id, std::uint32_t slot);

  ControlMemory memory;
  ControlView view;
  DirectoryWriter directory;
  IndexWriter index;
  DirectoryReader reader;
};

// A segment's payload with an allocator over it. Under the address sanitizer what is free is poisoned: any read or
// write of it ends the test with the place that did it.
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
