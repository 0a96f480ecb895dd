// LeasePool: the segment ranges that only this process may write to.
//
//   (daemon) ──lease──▶ free ──allocate──▶ in use ──sealed──▶ (store)
//                        ▲ └──return──▶ returning ──answered──▶ (daemon)
//                        └────────give_back──── in use
//
// Leases start small and double with use. A segment in which nothing is free, in use or returning is unmapped and
// returned as a whole, so that the store can lease it to others once it is empty. Ranges that stay free for long are
// returned by callers of return_idle.
//
// Messages about one segment must not overtake each other; otherwise the return of a range's former lease could take
// away its new one. Therefore a return is sent once, on the connection in use when the range was taken out of `free`; a
// segment is returned as a whole only when none of it is returning and no lease is being requested; and no lease is
// requested until that return is answered.
//
// The answer to a return may be processed late: when the last range of a segment goes, the daemon may remove the
// segment and lease a new one with the same number to another thread first. The new one then takes its place at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/rpc.h"
#include "net/protocol.h"
#include "os/mapping.h"
#include "os/unique_fd.h"

namespace entrepot {

inline constexpr std::uint64_t kFirstLeaseBytes = 4U << 20;
inline constexpr std::uint64_t kMaxLeaseBytes = 64U << 20;

struct WritableSegment {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  MemoryKind kind = MemoryKind::kUnknown;  // when it was leased first; small pages may have become huge ones since
  UniqueFd fd;                             // for further mappings of parts of it
  os::Mapping mapping;
  std::uint64_t in_use = 0;    // ranges in use or returning; guarded by the pool's mutex
  bool was_protected = false;  // part of it is read-only; guarded by the pool's mutex
};

struct LeasedRange {
  std::shared_ptr<WritableSegment> memory;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;   // reserved bytes, at least those requested
  bool is_protected = false;  // its pages are read-only here, so that it cannot be used again without a new lease

  [[nodiscard]] std::byte* data() const { return memory->mapping.data() + offset; }
  // Copies to the start of it, which a large blob has for itself.
  void fill(const void* from, std::uint64_t bytes) const;
  [[nodiscard]] std::uint32_t segment() const { return memory->segment; }
};

class LeasePool {
 public:
  // `isolated`: from segments that nobody else is ever given, so that their descriptors may be passed on.
  explicit LeasePool(Rpc& rpc, bool isolated = false)
      : rpc_(rpc), request_type_(isolated ? MessageType::kLeaseIsolated : MessageType::kLease) {}

  // Allocates `length` bytes at a multiple of `align` (a power of two). `more`: bytes that the caller will request
  // next, so that one lease serves all. Waits up to `wait_ms` for memory.
  [[nodiscard]] Result<LeasedRange> allocate(std::uint64_t length, std::uint64_t align, std::uint64_t more,
                                             std::uint32_t wait_ms, const Interrupt& interrupt,
                                             std::uint64_t answer_ms = kAnswerMs);

  // How long a caller waits that can do without a lease. What it waits for is looked at every `wait_ms`.
  struct Patience {
    std::uint32_t wait_ms = 0;                   // for memory
    std::uint32_t answer_ms = 0;                 // for the daemon's answer, in addition
    std::uint32_t provisioning_ms = 0;           // in all, as long as the next says so
    std::function<bool()> is_being_provisioned;  // whether the daemon is making memory
  };
  // The same for such a caller, which never waits longer than provisioning_ms + wait_ms + answer_ms.
  [[nodiscard]] Result<LeasedRange> try_allocate(std::uint64_t length, std::uint64_t align, const Patience& patience);

  // The same from what is leased already, without asking the daemon.
  [[nodiscard]] std::optional<LeasedRange> allocate_at_hand(std::uint64_t length, std::uint64_t align);

  // Gives back what is behind the first `length` bytes, a multiple of kBlobAlign; `range` becomes that short.
  void shorten(LeasedRange& range, std::uint64_t length);
  void sealed(const LeasedRange& range);     // the daemon took it over
  void give_back(const LeasedRange& range);  // not needed after all; if it is protected, goes back to the daemon
  // Makes whole pages of a range read-only in this process, before sealing a range that the user has a view of: a stray
  // write then faults in the process that did it. Not done for other ranges: nobody has their address, and it is
  // costly, because it splits huge pages, whose other parts the next writer faults in again one by one.
  [[nodiscard]] Status protect(LeasedRange& range);
  // Returns an unneeded range that the user may still have a view of: protects it and returns it to the daemon; a new
  // lease of it makes it writable again.
  void give_back_protected(LeasedRange range);

  // Returns all free ranges to the daemon.
  void return_idle(const Interrupt& interrupt);
  // True if return_idle has anything to do.
  [[nodiscard]] bool has_idle() const;

  // Ranges held, for a reconnect. A lease requested before this call and answered after it is not used.
  [[nodiscard]] std::vector<ReportedRange> snapshot_for_reconnect();

  // Locked around fork: the child inherits no lease.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void clear_in_child();  // requires the lock

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // segment, offset

  // When a message was created: the connection it may be sent on, and the snapshots that included its range.
  struct LeaseContext {
    std::shared_ptr<Connection> current_connection;
    std::uint64_t epoch = 0;
  };
  struct Returning {
    std::shared_ptr<WritableSegment> memory;  // null: the segment is not mapped here
    UnleaseRequest request;
    bool reusable = true;  // its pages are writable: if it cannot be returned, it is free again
  };

  // Requires mutex_.
  [[nodiscard]] bool allocate_from_free(std::uint64_t length, std::uint64_t align, LeasedRange& out);
  [[nodiscard]] Status request(std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint32_t wait_ms,
                               const Interrupt& interrupt, std::uint64_t answer_ms = kAnswerMs);
  [[nodiscard]] Status accept(Frame frame, const LeaseContext& context, const Interrupt& interrupt);
  void accept_abandoned(Frame frame, const LeaseContext& context);
  [[nodiscard]] Result<std::shared_ptr<WritableSegment>> map_segment(const LeaseReply& lease, Frame& frame,
                                                                     const LeaseContext& context,
                                                                     const Interrupt& interrupt);
  // The daemon has removed the former segment of this number and created another: nothing of the former is leased any
  // more. A thread that is still returning a range of it keeps its mapping; the return is ignored. Requires mutex_.
  void replace_segment(std::shared_ptr<WritableSegment> fresh);
  [[nodiscard]] bool is_current(const std::shared_ptr<WritableSegment>& memory) const;  // requires mutex_
  [[nodiscard]] bool take_out(const LeasedRange& range);  // of in_use_; false: it is not there. Requires mutex_
  void add_free(std::uint32_t segment, std::uint64_t offset, std::uint64_t length);  // requires mutex_
  void forget_smallest_free();                                                       // requires mutex_
  void send_return(const Returning& range, const LeaseContext& context, const Interrupt& interrupt);
  // Forgets the segment if nothing of it is free (except crumbs of a large lease), in use or returning, and no lease is
  // being requested, whose answer may be about this segment. Returns true if so; the caller must then tell the daemon
  // with send_segment_done. Requires mutex_.
  [[nodiscard]] bool forget_if_empty(std::uint32_t segment);
  void send_segment_done(std::uint32_t segment, const Interrupt& interrupt);
  [[nodiscard]] std::shared_ptr<void> begin_lease();  // ends when the last copy of the result is destroyed

  Rpc& rpc_;
  const MessageType request_type_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<WritableSegment>> segments_;  // guarded by mutex_
  std::map<Key, std::uint64_t> free_;                                   // guarded by mutex_; length by location
  std::map<Key, std::uint64_t> in_use_;                                 // guarded by mutex_
  std::uint64_t next_lease_bytes_ = kFirstLeaseBytes;                   // guarded by mutex_
  std::uint64_t epoch_ = 0;                                             // guarded by mutex_; incremented on reconnect
  std::uint32_t leasing_ = 0;    // guarded by mutex_: leases requested and not answered; keeps segments
  std::uint32_t finishing_ = 0;  // guarded by mutex_: segments forgotten here, not yet acknowledged
  std::vector<std::pair<LeaseContext, Returning>>
      unreturned_;  // guarded by mutex_: answers that came when nobody could return them
  std::condition_variable finished_;
};

}  // namespace entrepot
