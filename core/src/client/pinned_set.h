// PinnedSet: all objects pinned by this process, indexed by slot (so that each is pinned once) and by address (so that
// a put can refer to bytes already in the store). Outlives the connection as long as any value exists.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/pin.h"
#include "client/sealed_object.h"
#include "client/segment_views.h"
#include "os/unique_fd.h"
#include "shm/blobs.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/pins.h"
#include "shm/record_arena.h"

namespace entrepot {

// A range of sealed bytes, as referenced by a Seal request.
struct SharedRange {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;       // in the blob
  std::uint64_t blob_length = 0;  // of the whole blob
};

class PinnedSet;

// Description of an object without its payload.
struct ObjectTree {
  std::string tree;
  std::uint64_t payload_bytes = 0;
  std::uint32_t generation = 0;
  std::vector<std::uint64_t> lengths;  // of its buffers
};

// A small object, pinned and read in place: tree and payload are in its record. Created without allocation, lock or
// system call; must be destroyed before its PinnedSet and before the next fork.
class InlineObject {
 public:
  InlineObject() = default;
  InlineObject(const InlineObject&) = delete;
  InlineObject& operator=(const InlineObject&) = delete;
  InlineObject(InlineObject&&) = delete;
  InlineObject& operator=(InlineObject&&) = delete;

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(pin_); }
  [[nodiscard]] const RecordView& record() const { return record_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }

 private:
  friend class PinnedSet;
  Pin pin_;
  std::uint32_t generation_ = 0;
  RecordView record_;
};

// A pin that the daemon wrote with a seal, for memory of the sealed object that is used without a SealedObject.
class HeldPin {
 public:
  HeldPin(std::shared_ptr<PinnedSet> set, std::uint32_t position) : set_(std::move(set)), position_(position) {}
  ~HeldPin();
  HeldPin(const HeldPin&) = delete;
  HeldPin& operator=(const HeldPin&) = delete;
  HeldPin(HeldPin&&) = delete;
  HeldPin& operator=(HeldPin&&) = delete;

 private:
  std::shared_ptr<PinnedSet> set_;
  std::uint32_t position_ = 0;
};

class PinnedSet : public std::enable_shared_from_this<PinnedSet> {
 public:
  // `liveness` is only kept open: its end-of-file tells the daemon that this process is gone.
  PinnedSet(ControlView control, PinTable pins, UniqueFd liveness);

  // Returns the sealed object with this ID, pinned. Null: not found; ask the daemon. `next` are those that the caller
  // gets from here on: if a segment has to be mapped, theirs are mapped with it.
  [[nodiscard]] Result<std::shared_ptr<SealedObject>> find(const IdBytes& id, SegmentViews& views, const Wait& wait,
                                                           const Interrupt& interrupt,
                                                           std::span<const IdBytes> next = {});
  // Maps the segments of objects in memory, as far as SegmentViews::map_together() does. None is pinned.
  [[nodiscard]] Status map(std::span<const IdBytes> ids, SegmentViews& views, const Wait& wait,
                           const Interrupt& interrupt);
  // The same at the location given by the daemon.
  [[nodiscard]] Result<std::shared_ptr<SealedObject>> at(std::uint32_t slot, std::uint32_t generation,
                                                         const IdBytes& id, SegmentViews& views, const Wait& wait,
                                                         const Interrupt& interrupt);
  // Pins the object if it is in the directory and entirely in its record. False: use find, which also reports errors.
  // The hot path of a small get.
  [[nodiscard]] bool peek(const IdBytes& id, InlineObject& object);
  // Describes an object in memory or on disk, without reloading it. nullopt: not found, ask the daemon; or it is gone
  // since the daemon gave its location.
  [[nodiscard]] Result<std::optional<ObjectTree>> tree(const IdBytes& id);
  [[nodiscard]] Result<std::optional<ObjectTree>> tree_at(std::uint32_t slot, std::uint32_t generation,
                                                          const IdBytes& id);
  // Generation of the object according to the directory, without asking the daemon.
  [[nodiscard]] std::optional<std::uint32_t> generation_of(const IdBytes& id) const;

  [[nodiscard]] std::optional<std::uint32_t> shown_generation(const IdBytes& id) const;  // the same, also on disk
  [[nodiscard]] std::vector<IdBytes> ids() const;  // of all objects in the directory
  // Hashes of the IDs of all objects in the directory, sorted.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints() const;
  [[nodiscard]] static std::uint64_t fingerprint(const IdBytes& id);

  // Finds the blob that contains [data, data + length), if it belongs to an object pinned here.
  [[nodiscard]] std::optional<SharedRange> locate(const void* data, std::uint64_t length);

  // Reserves a position of the pin table, in which the daemon is to write a pin with a seal. After the seal, hold() takes
  // over the pin that is there; cancel() ends a reservation without one.
  [[nodiscard]] Result<std::uint32_t> reserve_pin();
  [[nodiscard]] bool is_pin(std::uint32_t position) const { return pins_.pin_at(position) != 0; }
  [[nodiscard]] std::shared_ptr<HeldPin> hold(std::uint32_t position);
  void cancel(std::uint32_t position) { pins_.unpin(position); }

  [[nodiscard]] const ControlView& control() const { return control_; }
  [[nodiscard]] int pin_table_fd() const { return pins_.fd(); }
  [[nodiscard]] std::uint32_t pins_in_use() const { return pins_.in_use(); }

  // Sets the callback for a removed pin while the daemon wants memory. Call once, before the first pin.
  void on_released(std::function<void()> hint);

  // Sets the callback that requests a number of pin places from the daemon and returns the new number. Call once,
  // before the first pin.
  using Grow = std::function<Result<std::uint32_t>(std::uint32_t)>;
  void on_full(Grow grow) { grow_ = std::move(grow); }

  // Locked around fork.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  // Copies the pins of all live values to the child's own table. Requires the lock.
  [[nodiscard]] Status copy_pins_to(PinTable& table) const;
  // For a child without its own table: both processes' values rely on the existing pins, so neither process removes
  // them. They end with the last process that holds the liveness socket. Requires the lock.
  void share_pins_with_child();
  void switch_in_child(PinTable pins, UniqueFd liveness);  // requires the lock

 private:
  friend class SealedObject;
  friend class Pin;
  friend class HeldPin;
  struct Held {
    std::weak_ptr<HeldPin> pin;
    bool shared = false;  // with a forked process
  };
  struct Entry {
    const SealedObject* object = nullptr;
    std::weak_ptr<SealedObject> reference;
    bool shared = false;  // the pin is shared with a forked process
  };
  struct BlobAtAddress {
    std::uint64_t length = 0;
    std::uint32_t blob = 0;
    std::uint32_t generation = 0;
    std::uint32_t objects = 0;  // pinned objects that reference it
  };

  [[nodiscard]] Result<std::shared_ptr<SealedObject>> pin(const SlotSnapshot& snapshot, const IdBytes& id,
                                                          SegmentViews& views, const Wait& wait,
                                                          const Interrupt& interrupt, std::span<const IdBytes> next);
  // Appends those segments of an object in memory that are not mapped, unless they are there.
  void add_unmapped(const IdBytes& id, SegmentViews& views, std::vector<SegmentKey>& keys);
  // For a pinned slot only.
  [[nodiscard]] Result<RecordView> record_of(std::uint32_t slot) const {
    return read_record(control_, directory_.slot(slot));
  }
  [[nodiscard]] Result<std::optional<ObjectTree>> tree_of(const SlotSnapshot& snapshot, const IdBytes& id);
  // What `take` returns, a position; requests more places as long as it finds all used.
  template <class Take>
  [[nodiscard]] Result<std::uint32_t> take_position(const Take& take);
  [[nodiscard]] Result<Pin> take_pin(const SlotSnapshot& snapshot);
  void unpin(std::uint32_t position);
  void release_held(std::uint32_t position);
  void notify_released();  // after a pin was removed, if the daemon wants to know
  [[nodiscard]] Status resolve(SealedObject& object, SegmentViews& views, const Wait& wait, const Interrupt& interrupt,
                               std::span<const IdBytes> next);
  void release(SealedObject& object);

  ControlView control_;
  DirectoryReader directory_;
  BlobReader blobs_;
  PinTable pins_;
  Grow grow_;
  UniqueFd liveness_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> objects_;      // guarded by mutex_; by PinWord::make(slot, generation)
  std::map<const std::byte*, BlobAtAddress> by_address_;  // guarded by mutex_
  std::unordered_map<std::uint32_t, Held> held_;          // guarded by mutex_; by position
  std::function<void()> released_;                        // guarded by mutex_
};

}  // namespace entrepot
