// Pins: a pin keeps an object resident for a reader (a hazard pointer in shared memory).
//
// Protocol. Reader: (1) load the slot's word, which must be sealed; (2) publish the pin in its own table by a
// sequentially consistent exchange; (3) load the word again: if unchanged, the object stays until unpin; otherwise
// unpin and start over. Daemon: (1) exchange the word for a state other than sealed (sequentially consistent); (2) scan
// all pins; (3) reuse the memory only if nobody pins (slot, generation). In the single total order of these operations,
// either the reader's second load follows the daemon's exchange and fails, or the pin precedes the daemon's scan and is
// seen.
//
// A pin also keeps the object's record. A reader of the record alone (`find_existing`) accepts `spilled` as well as
// `sealed` in (1) and (3), but never `evicting`: in that state the daemon scans once, and then frees the blobs
// (spilled) or blobs and record (dropped) without another scan.
//
// State of a pin word: 0 --pin--> slot and generation --unpin (release)--> 0. Written by the owning client; only in a
// position that the client has reserved for the object it seals, the daemon writes the pin, before anybody can find the
// object. The daemon discards a dead client's table as a whole.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "os/mapping.h"
#include "os/unique_fd.h"
#include "shm/layout.h"

namespace entrepot {

[[nodiscard]] constexpr std::uint64_t pin_table_bytes(std::uint32_t capacity) {
  return sizeof(PinTableHeader) + 8ULL * kAccessRing + 8ULL * capacity;
}
// Number of pins that fit into this much memory of a table.
[[nodiscard]] constexpr std::uint32_t pins_fitting(std::uint64_t bytes, std::uint32_t capacity) {
  const std::uint64_t reserved_pins = bytes <= pin_table_bytes(0) ? 0 : (bytes - pin_table_bytes(0)) / 8;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(reserved_pins, capacity));
}
// Memory of a table of `capacity` pins with at least `reserved_pins` of them, in whole pages, at most the full table.
[[nodiscard]] std::uint64_t pin_memory_bytes(std::uint32_t reserved_pins, std::uint32_t capacity);

// Creates a pin table: a sealed memfd with its header written, whose descriptor the daemon sends to the client. Its
// size is that of `capacity` pins, 1 to kMaxPinsPerClient, else kInvalidArgument; memory is reserved for at least the
// first `reserved_pins`. The rest is a hole, which neither side touches before grow_pin_table.
[[nodiscard]] Result<UniqueFd> create_pin_table(std::uint32_t capacity, std::uint32_t reserved_pins = 0);
// Reserves memory for at least `reserved_pins` pins and returns the new number. kStoreFull: there is no memory.
[[nodiscard]] Result<std::uint32_t> grow_pin_table(int fd, std::uint32_t capacity, std::uint32_t reserved_pins);

// The client's side. Any number of threads pin and unpin concurrently without locks; free positions form a private
// stack.
class PinTable {
 public:
  static constexpr std::uint32_t kNoPosition = 0xffff'ffffU;

  PinTable() = default;
  // kCorruptData or kVersionMismatch if the header is not that of a pin table of this layout; kInvalidArgument if it is
  // too short.
  [[nodiscard]] static Result<PinTable> attach(UniqueFd fd);
  [[nodiscard]] static Result<PinTable> create_private(std::uint32_t capacity);  // for tests

  // Returns the position of the new pin, or kNoPosition if none is free (request more; see places). No allocation, no
  // system call.
  [[nodiscard]] std::uint32_t pin(std::uint32_t slot, std::uint32_t generation);
  void unpin(std::uint32_t position);
  // Takes a position in which the daemon is to write a pin; kNoPosition as for pin(). End it with unpin().
  [[nodiscard]] std::uint32_t reserve();

  // Notes a get of the object, for eviction. Entries may be lost if several threads do so at once.
  void record_access(std::uint32_t slot, std::uint32_t generation) {
    const std::uint32_t at = header()->accesses.load(std::memory_order_relaxed);
    ring_[at % kAccessRing].store(PinWord::make(slot, generation), std::memory_order_relaxed);
    header()->accesses.store(at + 1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t pin_at(std::uint32_t position) const;
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  // Number of pins that the table has memory for. More after the daemon has granted them.
  [[nodiscard]] std::uint32_t reserved_pins() const { return state_->reserved_pins.load(std::memory_order_acquire); }
  void grow_to(std::uint32_t reserved_pins);   // bounded by the capacity; never shrinks
  [[nodiscard]] std::uint32_t in_use() const;  // counts the pins; for status and messages
  [[nodiscard]] Status full_error() const;     // kStoreFull naming the capacity and the remedy
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::byte* memory() const { return mapping_.data(); }
  [[nodiscard]] const os::Mapping& mapping() const { return mapping_; }

  // For fork: copies `source`'s pins at these positions, which nobody may unpin meanwhile, to the same positions of
  // this new table, which must have memory for them. Other pins of `source` are not copied: nobody here would ever
  // unpin them.
  [[nodiscard]] Status copy_from(const PinTable& source, std::span<const std::uint32_t> positions);

 private:
  // Process-private, and on the heap so that the table can be moved.
  struct State {
    std::atomic<std::uint64_t> top{0};    // free stack: low 32 position + 1, high 32 a tag against ABA
    std::atomic<std::uint32_t> fresh{0};  // positions from here on were never used
    std::atomic<std::uint32_t> reserved_pins{0};
  };

  static Result<PinTable> from_memory(UniqueFd fd, os::Mapping mapping, std::uint32_t capacity,
                                      std::uint32_t reserved_pins);
  [[nodiscard]] std::uint32_t take_position();
  void raise_high_water(std::uint32_t position);
  void give_position(std::uint32_t position);
  [[nodiscard]] PinTableHeader* header() const { return reinterpret_cast<PinTableHeader*>(mapping_.data()); }

  UniqueFd fd_;
  os::Mapping mapping_;
  os::Mapping next_mapping_;
  std::atomic<std::uint64_t>* pins_ = nullptr;
  std::atomic<std::uint64_t>* ring_ = nullptr;
  std::atomic<std::uint32_t>* next_ = nullptr;  // next in the free stack: position + 1; in next_mapping_
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

// The daemon's side. Trusts nothing in the tables except which pages exist, which the kernel reports. Guarded by the
// daemon's thread.
class PinScanner {
 public:
  // `capacity` must be the number the table was created with; the file must be at least that large and sealed. Only reserved pages are read: reading a hole would fill it.
  [[nodiscard]] Status add(std::uint32_t client, int fd, std::uint32_t capacity);
  [[nodiscard]] Status add_private(std::uint32_t client, const PinTable& table);  // tests; the table outlives it
  // Registers a client whose table cannot be read. It may pin anything, so until it is gone or its table is added,
  // every scan reports every victim as pinned.
  void add_unreadable(std::uint32_t client);
  void grow(std::uint32_t client, std::uint32_t reserved_pins);           // the result of grow_pin_table
  [[nodiscard]] std::uint32_t reserved_pins(std::uint32_t client) const;  // 0: no table
  [[nodiscard]] bool is_unreadable(std::uint32_t client) const;
  // Whether place() would write a pin there.
  [[nodiscard]] bool can_place(std::uint32_t client, std::uint32_t position) const;
  // Writes a pin in a position that the client has reserved.
  void place(std::uint32_t client, std::uint32_t position, const PinTarget& target);
  void remove(std::uint32_t client);  // ignores its pins from now on; unknown clients are ignored
  [[nodiscard]] bool has(std::uint32_t client) const;

  // Scans all tables once for a batch: result[i] is 1 if anybody pins victims[i]. The victims' words must have been
  // exchanged before.
  [[nodiscard]] std::vector<std::uint8_t> scan(std::span<const PinTarget> victims) const;

  // Clients that pin this object (for messages and info). 0 pins: unknown, because its table cannot be read.
  [[nodiscard]] std::vector<PinCount> pinned_by(const PinTarget& target) const;

  [[nodiscard]] std::uint32_t count(std::uint32_t client) const;  // its number of pins

  // Calls visit(client, PinTarget) for every pin, e.g. to sum up the pinned bytes.
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

  // Calls visit(client, PinTarget) for the gets that each client noted since the last drain, oldest first; overwritten
  // entries are skipped. Clients write the targets: validate them before use.
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
    std::uint32_t reserved_pins = 0;
    std::uint32_t drained = 0;  // value of PinTableHeader::accesses at the last drain
    const PinTableHeader* header = nullptr;
    std::atomic<std::uint64_t>* pins = nullptr;
    const std::atomic<std::uint64_t>* ring = nullptr;
    os::Mapping mapping;  // empty for private tables
  };
  void add(Table table, std::byte* memory);
  [[nodiscard]] static std::uint32_t bounded_high_water(const Table& table);

  std::vector<Table> tables_;
  std::vector<std::uint32_t> unreadable_;  // clients
};

}  // namespace entrepot
