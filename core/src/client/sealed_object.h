// SealedObject: an object pinned by this process, with its buffers as addresses. One per (slot, generation) and
// process; shared pointers to it count its users.
//
//   created (pinned, rechecked) ──last pointer gone──▶ unpinned, unless a forked process shares the pin
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "client/pin.h"
#include "client/segment_views.h"
#include "os/mapping.h"
#include "shm/record.h"

namespace entrepot {

class PinnedSet;

// Location of a buffer's bytes. Valid as long as its object.
struct BufferView {
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
  [[nodiscard]] const std::vector<BufferView>& buffers() const { return buffers_; }
  [[nodiscard]] std::uint64_t payload_bytes() const;

  // Maps a private, writable image of buffer `index`: the kernel copies each page on write. The object must live as
  // long as the mapping. `data` is the start of the buffer in it.
  struct PrivateMapping {
    os::Mapping mapping;
    std::byte* data = nullptr;
  };
  [[nodiscard]] Result<PrivateMapping> map_private(std::size_t index) const;

 private:
  friend class PinnedSet;
  SealedObject() = default;

  std::shared_ptr<PinnedSet> owner_;  // unpins; keeps pin table and control memory alive
  IdBytes id_{};
  std::uint32_t slot_ = 0;
  std::uint32_t generation_ = 0;
  Pin pin_;  // ended by the owner, under its lock
  RecordView record_;
  std::vector<BufferView> buffers_;
  std::vector<std::shared_ptr<const SegmentView>> views_;
  std::vector<const std::byte*> blob_addresses_;  // as registered with the owner
};

}  // namespace entrepot
