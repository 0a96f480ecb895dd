// PinnedSet: all objects that this process pins, found by place (so that there is one pin each) and by address (so that
// a put can refer to bytes that are in the store already). Outlives the connection for as long as a value does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "client/sealed_object.h"
#include "client/segment_views.h"
#include "shm/blobs.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/pins.h"
#include "shm/record_arena.h"

namespace entrepot {

// A range of sealed bytes, as a Seal request refers to it.
struct SharedRange {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;       // in the blob
  std::uint64_t blob_length = 0;  // of the whole blob
};

class PinnedSet;

// What an object is, without its payload.
struct ObjectTree {
  std::string tree;
  std::uint64_t payload_bytes = 0;
  std::uint32_t generation = 0;
};

// A small object, pinned and read in place: its tree and payload lie in its record. Made without allocation, lock or
// system call; ends before its PinnedSet does, and before the next fork.
class InlineObject {
 public:
  InlineObject() = default;
  ~InlineObject();
  InlineObject(const InlineObject&) = delete;
  InlineObject& operator=(const InlineObject&) = delete;
  InlineObject(InlineObject&&) = delete;
  InlineObject& operator=(InlineObject&&) = delete;

  [[nodiscard]] explicit operator bool() const { return set_ != nullptr; }
  [[nodiscard]] const RecordView& record() const { return record_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }

 private:
  friend class PinnedSet;
  PinnedSet* set_ = nullptr;  // null: nothing pinned
  std::uint32_t position_ = 0;
  std::uint32_t generation_ = 0;
  RecordView record_;
};

class PinnedSet : public std::enable_shared_from_this<PinnedSet> {
 public:
  // `liveness` is kept open and never used: its end tells the daemon that this process is gone.
  PinnedSet(ControlView control, PinTable pins, UniqueFd liveness);

  // The sealed object of this ID, pinned. None: not found, ask the daemon.
  [[nodiscard]] Result<std::shared_ptr<SealedObject>> find(const IdBytes& id, SegmentViews& views,
                                                           const Interrupt& interrupt);
  // The same where the daemon said that it is.
  [[nodiscard]] Result<std::shared_ptr<SealedObject>> at(std::uint32_t slot, std::uint32_t generation,
                                                         const IdBytes& id, SegmentViews& views,
                                                         const Interrupt& interrupt);
  // Pins the object of this ID if it is in the directory and wholly in its record. False: use find, which also says
  // what is wrong. The hot path of a small get.
  [[nodiscard]] bool peek(const IdBytes& id, InlineObject& object);
  // What an object is, its payload in memory or in cold storage, where it stays. None: not found, ask the daemon; or
  // it went since the daemon said where it is.
  [[nodiscard]] Result<std::optional<ObjectTree>> tree(const IdBytes& id);
  [[nodiscard]] Result<std::optional<ObjectTree>> tree_at(std::uint32_t slot, std::uint32_t generation,
                                                          const IdBytes& id);
  // Its generation, as far as the directory tells without asking the daemon.
  [[nodiscard]] std::optional<std::uint32_t> generation_of(const IdBytes& id) const;

  // A hash of the ID of each object that is in the directory, sorted.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints() const;
  [[nodiscard]] static std::uint64_t fingerprint(const IdBytes& id);

  // Whether [data, data + length) lies in a blob of an object that is pinned here.
  [[nodiscard]] std::optional<SharedRange> locate(const void* data, std::uint64_t length);

  [[nodiscard]] const ControlView& control() const { return control_; }
  [[nodiscard]] int pin_table_fd() const { return pins_.fd(); }
  [[nodiscard]] std::uint32_t pins_in_use() const { return pins_.in_use(); }

  // Called after a pin went while the daemon wants memory; set once, before the first pin.
  void on_released(std::function<void()> hint);

  // Asks the daemon for places for so many pins; how many there are then. Set once, before the first pin.
  using Grow = std::function<Result<std::uint32_t>(std::uint32_t)>;
  void on_full(Grow grow) { grow_ = std::move(grow); }

  // Around fork.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  // Of all that a value holds, to the child's own table. Locked.
  [[nodiscard]] Status copy_pins_to(PinTable& table) const;
  // The child gets no table of its own: both processes' values live by the pins that there are now, so neither takes
  // one back. They end with the last process that holds the liveness socket. Locked.
  void share_pins_with_child();
  void switch_in_child(PinTable pins, UniqueFd liveness);  // locked

 private:
  friend class SealedObject;
  friend class InlineObject;
  struct Entry {
    const SealedObject* object = nullptr;
    std::weak_ptr<SealedObject> reference;
    bool shared = false;  // its pin is a forked process' too
  };
  struct BlobAt {
    std::uint64_t length = 0;
    std::uint32_t blob = 0;
    std::uint32_t generation = 0;
    std::uint32_t objects = 0;  // that are pinned and count on it
  };

  [[nodiscard]] Result<std::shared_ptr<SealedObject>> pin(const Found& found, const IdBytes& id, SegmentViews& views,
                                                          const Interrupt& interrupt);
  // Of a slot that is pinned.
  [[nodiscard]] Result<RecordView> record_of(std::uint32_t slot) const {
    return read_record(control_, directory_.slot(slot));
  }
  [[nodiscard]] Result<std::optional<ObjectTree>> tree_of(const Found& found, const IdBytes& id);
  // The position of a new pin; asks for more places where all are taken.
  [[nodiscard]] Result<std::uint32_t> take_pin(const Found& found);
  void unpin(std::uint32_t position);
  void tell_released();  // after a pin went, where the daemon wants to know
  [[nodiscard]] Status resolve(SealedObject& object, SegmentViews& views, const Interrupt& interrupt);
  void release(SealedObject& object);

  ControlView control_;
  DirectoryReader directory_;
  BlobReader blobs_;
  PinTable pins_;
  Grow grow_;
  UniqueFd liveness_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> objects_;  // guarded by mutex_; by Pin::make(slot, generation)
  std::map<const std::byte*, BlobAt> by_address_;     // guarded by mutex_
  std::function<void()> released_;                    // guarded by mutex_
};

}  // namespace entrepot
