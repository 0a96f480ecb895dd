// SealedObject: an object that this process pins, its buffers as addresses. One for each (slot, generation) and
// process; copies of the shared pointer are the private counts.
//
//   made (pinned, re-checked) ──last pointer gone──▶ unpinned
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "client/segment_views.h"
#include "os/mapping.h"
#include "shm/record.h"

namespace entrepot {

class PinnedSet;

// Where a buffer's bytes are. Valid as long as its object.
struct BufferPlace {
  const std::byte* data = nullptr;
  std::uint64_t length = 0;
  const SegmentView* view = nullptr;  // null for an inline payload
};

class SealedObject {
 public:
  ~SealedObject();
  SealedObject(const SealedObject&) = delete;
  SealedObject& operator=(const SealedObject&) = delete;
  SealedObject(SealedObject&&) = delete;
  SealedObject& operator=(SealedObject&&) = delete;

  [[nodiscard]] const IdBytes& id() const { return id_; }
  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }
  [[nodiscard]] std::string_view tree() const { return record_.tree(); }
  [[nodiscard]] const std::vector<BufferPlace>& buffers() const { return buffers_; }
  [[nodiscard]] std::uint64_t payload_bytes() const;

  // A private, writable image of buffer `index`: the kernel copies what is written, page by page. The object must stay
  // as long as the mapping. `data` is where the buffer begins in it.
  struct Private {
    os::Mapping mapping;
    std::byte* data = nullptr;
  };
  [[nodiscard]] Result<Private> map_private(std::size_t index) const;

 private:
  friend class PinnedSet;
  SealedObject() = default;

  std::shared_ptr<PinnedSet> owner_;  // unpins; holds the pin table and the control memory
  IdBytes id_{};
  std::uint32_t slot_ = 0;
  std::uint32_t generation_ = 0;
  std::uint32_t position_ = 0;  // of the pin
  RecordView record_;
  std::vector<BufferPlace> buffers_;
  std::vector<std::shared_ptr<const SegmentView>> views_;
  std::vector<const std::byte*> blob_addresses_;  // as registered with the owner
};

}  // namespace entrepot
