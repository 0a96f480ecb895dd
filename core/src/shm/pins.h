// Pins: a reader's claim that keeps an object resident (a hazard pointer that lives in shared memory).
//
// Protocol. Reader: (1) read the slot's word, sealed; (2) publish the pin by a sequentially consistent exchange into
// its own table; (3) read the word again: unchanged -> the object stays until unpin; changed -> unpin, and look again.
// Daemon: (1) exchange the word to a state that is not sealed (sequentially consistent); (2) read all pins; (3) reuse
// the memory only if nobody pins (slot, generation). In the single order of those operations either the reader's second
// read comes after the daemon's exchange and fails, or the pin comes before the daemon's scan and is seen.
//
// What a pin keeps is the object's record too. Who reads nothing else (`find_existing`) takes `spilled` for as good as
// `sealed`, in (1) and (3) alike, and never `evicting`: in that state the daemon scans, once, and then frees the blobs
// (spilled) or blobs and record (dropped) without another look.
//
// State of a pin word: 0 --pin--> slot and generation --unpin (release)--> 0. Written by the owning client only; the
// daemon clears a dead client's table as a whole by dropping it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/mapping.h"
#include "shm/layout.h"

namespace entrepot {

[[nodiscard]] constexpr std::uint64_t pin_table_bytes(std::uint32_t capacity) {
  return sizeof(PinTableHeader) + 8ULL * kAccessRing + 8ULL * capacity;
}
// The pins that a table with so much memory has places for.
[[nodiscard]] constexpr std::uint32_t pin_places(std::uint64_t bytes, std::uint32_t capacity) {
  const std::uint64_t places = bytes <= pin_table_bytes(0) ? 0 : (bytes - pin_table_bytes(0)) / 8;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(places, capacity));
}
// The memory of a table of `capacity` pins with at least `places` of them: whole pages, or all that it can have.
[[nodiscard]] std::uint64_t pin_memory_bytes(std::uint32_t places, std::uint32_t capacity);

// A new table (the daemon makes it and sends the descriptor): sealed memfd, header written. Its size is that of
// `capacity` pins, 1 .. kMaxPinsPerClient, else kInvalidArgument; memory is there for the first ones, for `places` at
// least. The rest is a hole: neither side touches it before grow_pin_table.
[[nodiscard]] Result<UniqueFd> create_pin_table(std::uint32_t capacity, std::uint32_t places = 0);
// Memory for at least `places` pins; how many there are then. kStoreFull: there is none.
[[nodiscard]] Result<std::uint32_t> grow_pin_table(int fd, std::uint32_t capacity, std::uint32_t places);

// The client's side. Any number of threads pin and unpin at once, without locks: free positions are a private stack.
class PinTable {
 public:
  static constexpr std::uint32_t kNoPosition = 0xffff'ffffU;

  PinTable() = default;
  // kCorruptData / kVersionMismatch if the header is not a pin table of this layout; kInvalidArgument if it is too
  // short.
  [[nodiscard]] static Result<PinTable> attach(UniqueFd fd);
  [[nodiscard]] static Result<PinTable> create_private(std::uint32_t capacity);  // tests

  // The position of the new pin, or kNoPosition when no place is free (ask for more, see places). No allocation, no
  // system call.
  [[nodiscard]] std::uint32_t pin(std::uint32_t slot, std::uint32_t generation);
  void unpin(std::uint32_t position);

  // Notes that the object was got. Threads that note at the same time may lose an entry.
  void note(std::uint32_t slot, std::uint32_t generation) {
    const std::uint32_t at = header()->accesses.load(std::memory_order_relaxed);
    ring_[at % kAccessRing].store(Pin::make(slot, generation), std::memory_order_relaxed);
    header()->accesses.store(at + 1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t pin_at(std::uint32_t position) const;
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  // There is memory for so many. A table that is attached has the first ones; more when the daemon said so.
  [[nodiscard]] std::uint32_t places() const { return state_->places.load(std::memory_order_acquire); }
  void grow_to(std::uint32_t places);          // bounded by the capacity; never smaller
  [[nodiscard]] std::uint32_t in_use() const;  // counts them: for status and messages
  [[nodiscard]] Status full_error() const;     // kStoreFull naming the capacity and the way out
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::byte* memory() const { return mapping_.data(); }
  [[nodiscard]] const os::Mapping& mapping() const { return mapping_; }

  // Fork: `source`'s pins at these positions, which nobody unpins meanwhile, at the same positions in this fresh table,
  // which has places for them. What else `source` has is not taken over: nobody here would ever unpin it.
  [[nodiscard]] Status copy_from(const PinTable& source, std::span<const std::uint32_t> positions);

 private:
  // Private to the process; on the heap so that the table can move.
  struct State {
    std::atomic<std::uint64_t> top{0};    // free stack: low 32 position + 1, high 32 a tag against ABA
    std::atomic<std::uint32_t> fresh{0};  // positions from here on were never used
    std::atomic<std::uint32_t> places{0};
  };

  static Result<PinTable> over(UniqueFd fd, os::Mapping mapping, std::uint32_t capacity, std::uint32_t places);
  [[nodiscard]] std::uint32_t take_position();
  void give_position(std::uint32_t position);
  [[nodiscard]] PinTableHeader* header() const { return reinterpret_cast<PinTableHeader*>(mapping_.data()); }

  UniqueFd fd_;
  os::Mapping mapping_;
  os::Mapping next_mapping_;
  std::atomic<std::uint64_t>* pins_ = nullptr;
  std::atomic<std::uint64_t>* ring_ = nullptr;
  std::atomic<std::uint32_t>* next_ = nullptr;  // of the free stack: position + 1; in next_mapping_
  std::uint32_t capacity_ = 0;
  std::unique_ptr<State> state_;
};

struct PinTarget {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const PinTarget&) const = default;
};

struct PinCount {
  std::uint32_t client = 0;
  std::uint32_t pins = 0;
};

// The daemon's side. Trusts nothing in the tables but their own memory, which the kernel tells it. Guarded by
// the daemon's thread.
class PinScanner {
 public:
  // `capacity` as the daemon made the table; the file must be at least that large, sealed, and is mapped read-only.
  // Only what has memory is looked at: reading a hole would fill it.
  [[nodiscard]] Status add(std::uint32_t client, int fd, std::uint32_t capacity);
  [[nodiscard]] Status add_private(std::uint32_t client, const PinTable& table);  // tests; the table outlives it
  // A client whose table cannot be read: it may pin anything, so until it is gone, or its table was added after all,
  // every scan says of every victim that it is pinned.
  void add_unreadable(std::uint32_t client);
  void grow(std::uint32_t client, std::uint32_t places);           // as grow_pin_table said
  [[nodiscard]] std::uint32_t places(std::uint32_t client) const;  // 0: no table
  [[nodiscard]] bool is_unreadable(std::uint32_t client) const;
  void remove(std::uint32_t client);  // its pins count no longer; unknown clients are ignored
  [[nodiscard]] bool has(std::uint32_t client) const;

  // One pass over all tables for a whole batch: result[i] is 1 if anybody pins victims[i]. The victims' words must have
  // been exchanged before.
  [[nodiscard]] std::vector<std::uint8_t> scan(std::span<const PinTarget> victims) const;

  // Who pins this object (for messages and info); 0 pins: it may, its table cannot be read.
  [[nodiscard]] std::vector<PinCount> pinned_by(const PinTarget& target) const;

  [[nodiscard]] std::uint32_t count(std::uint32_t client) const;  // its pins

  // Calls visit(client, PinTarget) for every pin, e.g. to add up the pinned bytes.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Table& table : tables_) {
      const std::uint32_t high_water = bounded_high_water(table);
      for (std::uint32_t i = 0; i < high_water; ++i) {
        const std::uint64_t pin = table.pins[i].load(std::memory_order_seq_cst);
        if (static_cast<std::uint32_t>(pin) == 0) continue;
        visit(table.client, PinTarget{static_cast<std::uint32_t>(pin) - 1, static_cast<std::uint32_t>(pin >> 32)});
      }
    }
  }

  // Calls visit(client, PinTarget) for what each client noted since the last drain, oldest first; what was overwritten
  // meanwhile is not seen. The targets are what clients wrote: check them before use.
  template <class Visit>
  void drain(Visit&& visit) {
    for (Table& table : tables_) {
      const std::uint32_t noted = table.header->accesses.load(std::memory_order_relaxed);
      const std::uint32_t fresh = std::min(noted - table.drained, kAccessRing);
      table.drained = noted;
      for (std::uint32_t at = noted - fresh; at != noted; ++at) {
        const std::uint64_t pin = table.ring[at % kAccessRing].load(std::memory_order_relaxed);
        if (static_cast<std::uint32_t>(pin) == 0) continue;
        visit(table.client, PinTarget{static_cast<std::uint32_t>(pin) - 1, static_cast<std::uint32_t>(pin >> 32)});
      }
    }
  }

 private:
  struct Table {
    std::uint32_t client = 0;
    std::uint32_t capacity = 0;
    std::uint32_t places = 0;
    std::uint32_t drained = 0;  // PinTableHeader::accesses up to here
    const PinTableHeader* header = nullptr;
    const std::atomic<std::uint64_t>* pins = nullptr;
    const std::atomic<std::uint64_t>* ring = nullptr;
    os::Mapping mapping;  // empty for private tables
  };
  void add(Table table, const std::byte* memory);
  [[nodiscard]] static std::uint32_t bounded_high_water(const Table& table);

  std::vector<Table> tables_;
  std::vector<std::uint32_t> unreadable_;  // clients
};

}  // namespace entrepot
