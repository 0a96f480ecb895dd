// LeasePool: the ranges of segments that this process alone may write.
//
//   (daemon) ──lease──▶ free ──allocate──▶ in use ──sealed──▶ (the store's)
//                        ▲ └──return──▶ returning ──answered──▶ (daemon)
//                        └────────give_back──── in use
//
// Leases start small and double with use. A segment of which nothing is free, in use or returning is unmapped and given
// back whole, so that the store may lease it to others when it is empty; what stays free for long is returned by
// whoever calls return_idle.
//
// Messages about one segment must not overtake each other, or a range that was leased anew is taken away by the return
// of its former life: a return of a range goes once, on the connection that was there when the range was taken out of
// `free`; a segment is given back whole only when nothing of it is returning and no lease is asked for, and no lease is
// asked for until that is answered.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/rpc.h"
#include "net/protocol.h"
#include "os/mapping.h"

namespace entrepot {

inline constexpr std::uint64_t kFirstLeaseBytes = 4U << 20;
inline constexpr std::uint64_t kMaxLeaseBytes = 64U << 20;

struct WritableSegment {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  os::Mapping mapping;
  std::uint64_t in_use = 0;    // ranges that are in use or returning; guarded by the pool's mutex
  bool was_protected = false;  // some of it is read-only; guarded by the pool's mutex
};

struct LeasedRange {
  std::shared_ptr<WritableSegment> memory;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // what is reserved, at least what was asked for

  [[nodiscard]] std::byte* data() const { return memory->mapping.data() + offset; }
  [[nodiscard]] std::uint32_t segment() const { return memory->segment; }
};

class LeasePool {
 public:
  explicit LeasePool(Rpc& rpc) : rpc_(rpc) {}

  // A range of `length` bytes at a multiple of `align` (a power of two). `more`: bytes that the caller will ask for
  // next, so that one lease serves them all. Waits for memory to `wait_ms`.
  [[nodiscard]] Result<LeasedRange> allocate(std::uint64_t length, std::uint64_t align, std::uint64_t more,
                                             std::uint32_t wait_ms, const Interrupt& interrupt);

  void sealed(const LeasedRange& range);     // the daemon took it
  void give_back(const LeasedRange& range);  // not needed after all
  // Before a range is sealed that the user has a view of: its whole pages become read-only here, so that a stray write
  // faults in the process that did it. Others need it not, as nobody has their address, and it costs them: it splits
  // huge pages, whose other parts the next writer faults in again one by one.
  [[nodiscard]] Status protect(const LeasedRange& range);
  // A range that the user may still have a view of is not needed after all: protected, it goes back to the daemon,
  // whose next lease of it makes it writable again.
  void give_back_protected(const LeasedRange& range);

  // Gives all free ranges back to the daemon.
  void return_idle(const Interrupt& interrupt);
  // Whether return_idle has anything to do.
  [[nodiscard]] bool has_idle() const;

  // What is held, for a reconnect. A lease that was asked for before this call and is answered after it is not used.
  [[nodiscard]] std::vector<HeldRange> snapshot_for_reconnect();

  // Around fork: the child inherits no lease.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void clear_in_child();  // locked

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // segment, offset

  // When a message was made: on which connection it may go, and which snapshots knew of it.
  struct Era {
    std::shared_ptr<Connection> link;
    std::uint64_t epoch = 0;
  };
  struct Returning {
    std::shared_ptr<WritableSegment> memory;  // null: of a segment that is not mapped here
    UnleaseRequest request;
    bool reusable = true;  // its pages are writable: if it cannot be returned it is free again
  };

  [[nodiscard]] bool carve(std::uint64_t length, std::uint64_t align, LeasedRange& out);  // mutex_ held
  [[nodiscard]] Status request(std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint32_t wait_ms,
                               const Interrupt& interrupt);
  [[nodiscard]] Status accept(Frame frame, const Era& era, const Interrupt& interrupt);
  void accept_abandoned(Frame frame, const Era& era);
  [[nodiscard]] Result<std::shared_ptr<WritableSegment>> map_segment(const LeaseReply& lease, Frame& frame,
                                                                     const Era& era, const Interrupt& interrupt);
  void add_free(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);  // mutex_ held
  void forget_smallest_free();                                                       // mutex_ held
  void send_back(const Returning& range, const Era& era, const Interrupt& interrupt);
  // Forgets the segment if nothing of it is free (beyond crumbs of a large lease), in use or returning and no lease is
  // asked for, whose answer may be about this very segment; true if so, and then the caller says so to the daemon by
  // send_done. mutex_ held.
  [[nodiscard]] bool forget_if_empty(std::uint32_t segment);
  void send_done(std::uint32_t segment, const Interrupt& interrupt);
  [[nodiscard]] std::shared_ptr<void> begin_lease();  // undone when the last copy of what it returns goes

  Rpc& rpc_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<WritableSegment>> segments_;  // guarded by mutex_
  std::map<Key, std::uint64_t> free_;                                   // guarded by mutex_; length by place
  std::map<Key, std::uint64_t> in_use_;                                 // guarded by mutex_
  std::uint64_t next_lease_bytes_ = kFirstLeaseBytes;                   // guarded by mutex_
  std::uint64_t epoch_ = 0;                                             // guarded by mutex_; +1 with each reconnect
  std::uint32_t leasing_ = 0;    // guarded by mutex_: leases asked for and not answered; no segment is forgotten then
  std::uint32_t finishing_ = 0;  // guarded by mutex_: segments forgotten here of which the daemon does not know yet
  std::vector<std::pair<Era, Returning>>
      left_over_;  // guarded by mutex_: answers that came when nobody could return them
  std::condition_variable finished_;
};

}  // namespace entrepot
