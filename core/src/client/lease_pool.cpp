#include "client/lease_pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/align.h"
#include "base/text.h"
#include "client/copy.h"
#include "os/memfd.h"
#include "shm/layout.h"
#include "shm/leases.h"

namespace entrepot {
namespace {

constexpr std::uint32_t kLeaseTries = 8;  // minimum; then until the timeout
constexpr int kShortTries = 3;            // of callers that can do without
constexpr std::uint32_t kFirstWaitMs = 100;
// The rest of a lease for one large value is too small for another, and prevents the daemon from leasing a range of the
// old length again when that value is gone.
constexpr std::uint64_t kCrumbBytes = 256U << 10;
constexpr std::uint64_t kPopulateFromBytes = 1U << 20;
constexpr std::uint64_t kPopulateStepBytes = 64U << 20;

// The part of a range that can be returned; length 0: none. The rest is returned with its segment.
UnleaseRequest returnable(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t first = round_up(offset, kReturnGranule);
  const std::uint64_t end = (offset + length) & ~(kReturnGranule - 1);
  return {segment, first, end > first ? end - first : 0, 0};
}

}  // namespace

// A fault for each small page takes longer than the copy: 1 GiB took 0.66 s, and populated before 0.22 s. In large steps,
// because every step costs: 0.29 s with 32 MiB, 0.39 s with 4 MiB. Where the pages are mapped already, it takes 0.02 s.
void LeasedRange::fill(const void* from, std::uint64_t bytes) const {
  const auto* source = static_cast<const std::byte*>(from);
  const bool populates = memory->kind == MemoryKind::kSmallPages && bytes >= kPopulateFromBytes;
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t step = populates ? kPopulateStepBytes : bytes;
  for (std::uint64_t done = 0; done < bytes; done += step) {
    const std::uint64_t part = std::min(step, bytes - done);
    if (populates && offset % page == 0) {
      // Best effort: what is not populated is faulted in by the copy.
      static_cast<void>(os::populate_write(data() + done, round_up(part, page)));
    }
    copy_payload(data() + done, source + done, part);
  }
}

Result<LeasedRange> LeasePool::allocate(std::uint64_t length, std::uint64_t align, std::uint64_t more,
                                        std::uint32_t wait_ms, const Interrupt& interrupt, std::uint64_t answer_ms) {
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(length, 1), kBlobAlign);
  const auto deadline = os::Deadline::after_ms(wait_ms + answer_ms);
  for (std::uint32_t tries = 0; tries < kLeaseTries || !deadline.passed(); ++tries) {
    std::uint64_t want = 0;
    LeasedRange range;
    {
      const std::lock_guard lock(mutex_);
      if (allocate_from_free(bytes, align, range)) return range;
      want = next_lease_bytes_;
    }
    // Not rounded to pages: if nothing else is free, it may fill the hole of a value of the same size.
    const std::uint64_t least = bytes + (tries == 0 ? 0 : align);
    want = std::max(want, round_up(least + more, os::page_bytes()));
    const std::uint32_t first_wait_ms = std::min(wait_ms, kFirstWaitMs);
    Status leased = request(least, want, first_wait_ms, interrupt, answer_ms);
    if (leased.code() == Code::kStoreFull && first_wait_ms < wait_ms) {
      // It may be waiting for what this client holds idle, which goes back only while no lease is being requested.
      return_idle(interrupt);
      leased = request(least, want, wait_ms - first_wait_ms, interrupt, answer_ms);
    }
    RETURN_IF_ERROR(leased);
  }
  return Status(Code::kStoreUnavailable,
                concat("no leased range of ", format_bytes(length), " was available in ", (wait_ms + answer_ms) / 1000,
                       " s: other threads used the leased memory, or the daemon died each time; try again"));
}

Result<LeasedRange> LeasePool::try_allocate(std::uint64_t length, std::uint64_t align, const Patience& patience) {
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(length, 1), kBlobAlign);
  const auto provisioned_by = os::Deadline::after_ms(patience.provisioning_ms);
  // Also for a daemon that dies: nobody has to wait for the next one.
  auto end = os::Deadline::after_ms(std::uint64_t{patience.provisioning_ms} + patience.wait_ms + patience.answer_ms);
  const Interrupt at_end{[](void* context) { return static_cast<const os::Deadline*>(context)->passed(); }, &end};
  for (int tries = 0; tries < kShortTries;) {
    std::uint64_t want = 0;
    LeasedRange range;
    {
      const std::lock_guard lock(mutex_);
      if (allocate_from_free(bytes, align, range)) return range;
      want = next_lease_bytes_;
    }
    // What is large enough for a segment of its own is aligned there; only in one that has other ranges it may not be.
    const bool is_alone = tries == 0 && bytes > kMaxLeaseBytes;
    const std::uint64_t least = bytes + (align > kReturnGranule && !is_alone ? align : 0);
    want = std::max(want, round_up(least, os::page_bytes()));
    const auto waited_until = os::Deadline::after_ms(patience.wait_ms);
    const Status leased = request(least, want, patience.wait_ms, at_end, patience.answer_ms);
    // The next request takes over the segment that is being made for this one. None follows a refusal without a wait.
    const bool has_waited = leased.code() == Code::kStoreFull && waited_until.passed();
    if (has_waited && !provisioned_by.passed() && patience.is_being_provisioned()) continue;
    RETURN_IF_ERROR(leased);
    ++tries;
  }
  return Status(Code::kStoreFull, "other threads took the leased memory");
}

std::optional<LeasedRange> LeasePool::allocate_at_hand(std::uint64_t length, std::uint64_t align) {
  LeasedRange range;
  const std::lock_guard lock(mutex_);
  if (!allocate_from_free(round_up(std::max<std::uint64_t>(length, 1), kBlobAlign), align, range)) return std::nullopt;
  return range;
}

bool LeasePool::allocate_from_free(std::uint64_t length, std::uint64_t align, LeasedRange& out) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::uint64_t start = round_up(it->first.second, align);
    if (start + length > it->first.second + it->second) continue;
    if (best == free_.end() || it->second < best->second) best = it;
  }
  if (best == free_.end()) return false;
  const auto [segment, offset] = best->first;
  const std::uint64_t end = offset + best->second;
  const std::uint64_t start = round_up(offset, align);
  free_.erase(best);
  if (start > offset) free_.emplace(Key{segment, offset}, start - offset);
  if (end > start + length) free_.emplace(Key{segment, start + length}, end - start - length);
  in_use_.emplace(Key{segment, start}, length);
  out.memory = segments_.at(segment);
  out.memory->in_use += 1;
  out.offset = start;
  out.length = length;
  return true;
}

Status LeasePool::request(std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint32_t wait_ms,
                          const Interrupt& interrupt, std::uint64_t answer_ms) {
  const std::shared_ptr<void> leasing = begin_lease();
  // Before the epoch: a snapshot in between belongs to a broken connection.
  LeaseContext context{rpc_.current_connection(), 0};
  if (context.current_connection && context.current_connection->broken()) {
    RETURN_IF_ERROR(rpc_.wait_reconnected(context.current_connection, interrupt));
    context.current_connection = rpc_.current_connection();
  }
  {
    const std::lock_guard lock(mutex_);
    context.epoch = epoch_;
  }
  CallOptions options;
  options.deadline = os::Deadline::after_ms(wait_ms + answer_ms);
  options.interrupt = interrupt;
  options.only_on = context.current_connection;
  options.abandoned = [this, context, leasing](Frame frame) { accept_abandoned(std::move(frame), context); };
  auto frame = rpc_.call(request_type_, to_wire(LeaseRequest{min_bytes, want_bytes, wait_ms}), options);
  if (frame.is_ok()) return accept(frame.take(), context, interrupt);
  if (!context.current_connection || !context.current_connection->broken()) return frame.status();
  return rpc_.wait_reconnected(context.current_connection, interrupt);  // the caller tries again
}

std::shared_ptr<void> LeasePool::begin_lease() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return finishing_ == 0; });
  leasing_ += 1;
  return {nullptr, [this](void*) {
            const std::lock_guard guard(mutex_);
            leasing_ -= 1;
          }};
}

Result<std::shared_ptr<WritableSegment>> LeasePool::map_segment(const LeaseReply& lease, Frame& frame,
                                                                const LeaseContext& context,
                                                                const Interrupt& interrupt) {
  if (frame.fds.empty()) {
    // The descriptor came with an answer that another thread has not processed yet, or that nobody processed.
    CallOptions options;
    options.interrupt = interrupt;
    options.only_on = context.current_connection;
    ASSIGN_OR_RETURN(const SegmentReply reply,
                     rpc_.request_reply<SegmentReply>(
                         MessageType::kSegment, SegmentRequest{lease.segment, kLeaseAccess}, options, &frame.fds));
    if (reply.segment_generation != lease.segment_generation) {
      return Status(Code::kInternal, concat("segment ", lease.segment, " was replaced while leased"));
    }
  }
  if (frame.fds.size() != 1) {
    return Status(Code::kInternal, concat("a lease of segment ", lease.segment, " came with ", frame.fds.size(),
                                          " descriptors instead of one"));
  }
  auto memory = std::make_shared<WritableSegment>();
  memory->segment = lease.segment;
  memory->generation = lease.segment_generation;
  memory->kind = lease.kind;
  ASSIGN_OR_RETURN(memory->mapping,
                   os::Mapping::map(frame.fds[0].get(), 0, lease.segment_bytes, os::Access::kReadWrite, kSegmentAlign));
  RETURN_IF_ERROR(memory->mapping.dont_fork());
  memory->fd = std::move(frame.fds[0]);
  return memory;
}

Status LeasePool::accept(Frame frame, const LeaseContext& context, const Interrupt& interrupt) {
  LeaseReply lease;
  if (!from_wire(frame.body, lease)) return {Code::kInternal, "the daemon's response to a lease is malformed"};
  if (lease.offset > lease.segment_bytes || lease.length > lease.segment_bytes - lease.offset) {
    return {Code::kInternal, concat("a lease of segment ", lease.segment, " is outside of it")};
  }
  Returning unused{nullptr, {lease.segment, lease.offset, lease.length, 0}, false};
  const auto current_segment = [&]() -> std::shared_ptr<WritableSegment> {  // mutex_ held
    const auto match = segments_.find(lease.segment);
    const bool same = match != segments_.end() && match->second->generation == lease.segment_generation;
    return same ? match->second : nullptr;
  };
  std::shared_ptr<WritableSegment> fresh;
  {
    std::unique_lock lock(mutex_);
    if (context.epoch != epoch_) return Status::ok();  // not in the snapshot given to the daemon: not ours
    if (!current_segment()) {
      lock.unlock();
      auto mapped = map_segment(lease, frame, context, interrupt);
      if (!mapped.is_ok()) {
        send_return(unused, context, interrupt);
        if (context.current_connection && context.current_connection->broken()) return Status::ok();
        return mapped.status();
      }
      fresh = mapped.take();
    }
  }
  const std::lock_guard lock(mutex_);
  if (context.epoch != epoch_) return Status::ok();
  auto memory = current_segment();
  if (!memory) {
    if (!fresh) return {Code::kInternal, concat("segment ", lease.segment, " was returned while leased")};
    const auto written = in_use_.lower_bound(Key{lease.segment, 0});
    if (written != in_use_.end() && written->first.first == lease.segment) {  // a seal does not name the generation
      return {Code::kInternal, concat("segment ", lease.segment, " was replaced while this client was writing to it")};
    }
    memory = std::move(fresh);
    replace_segment(memory);
  }
  if (memory->was_protected) {  // parts may be read-only from an earlier use
    const std::uint64_t page = os::page_bytes();
    const std::uint64_t first = lease.offset & ~(page - 1);
    const std::uint64_t last = std::min(round_up(lease.offset + lease.length, page), memory->mapping.bytes());
    if (const Status writable = memory->mapping.protect_read_write(first, last - first); !writable.is_ok()) {
      memory->in_use += 1;
      unused.memory = memory;
      unreturned_.emplace_back(context, unused);
      return writable;
    }
  }
  add_free(lease.segment, lease.offset, lease.length);
  next_lease_bytes_ = std::min(next_lease_bytes_ * 2, kMaxLeaseBytes);
  return Status::ok();
}

void LeasePool::accept_abandoned(Frame frame, const LeaseContext& context) {
  LeaseReply lease;
  if (!from_wire(frame.body, lease)) return;
  const std::lock_guard lock(mutex_);
  if (context.epoch != epoch_) return;
  unreturned_.emplace_back(context, Returning{nullptr, {lease.segment, lease.offset, lease.length, 0}, false});
}

void LeasePool::replace_segment(std::shared_ptr<WritableSegment> fresh) {
  const Key first{fresh->segment, 0};
  const Key last{fresh->segment + 1, 0};
  free_.erase(free_.lower_bound(first), free_.lower_bound(last));
  segments_[fresh->segment] = std::move(fresh);
}

bool LeasePool::is_current(const std::shared_ptr<WritableSegment>& memory) const {
  const auto match = segments_.find(memory->segment);
  return match != segments_.end() && match->second == memory;
}

void LeasePool::add_free(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
  auto next = free_.lower_bound(Key{segment, offset});
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first.first == segment && before->first.second + before->second == offset) {
      offset = before->first.second;
      length += before->second;
      free_.erase(before);
    }
  }
  next = free_.lower_bound(Key{segment, offset});
  if (next != free_.end() && next->first == Key{segment, offset + length}) {
    length += next->second;
    free_.erase(next);
  }
  free_.emplace(Key{segment, offset}, length);
}

bool LeasePool::forget_if_empty(std::uint32_t segment) {
  const auto match = segments_.find(segment);
  if (match == segments_.end() || match->second->in_use > 0 || leasing_ > 0) return false;
  const auto first = free_.lower_bound(Key{segment, 0});
  const auto last = free_.lower_bound(Key{segment + 1, 0});
  const std::uint64_t crumbs = match->second->mapping.bytes() > kMaxLeaseBytes ? kCrumbBytes : 0;
  if (std::any_of(first, last, [&](const auto& range) { return range.second >= crumbs; })) return false;
  free_.erase(first, last);  // goes with the segment
  segments_.erase(match);
  finishing_ += 1;
  return true;
}

void LeasePool::send_segment_done(std::uint32_t segment, const Interrupt& interrupt) {
  CallOptions options;
  options.interrupt = interrupt;
  // If this fails, the daemon learns of it at the latest when this client is gone.
  static_cast<void>(rpc_.call(MessageType::kUnlease, to_wire(UnleaseRequest{segment, 0, 0, 1}), options).is_ok());
  const std::lock_guard lock(mutex_);
  finishing_ -= 1;
  finished_.notify_all();
}

bool LeasePool::take_out(const LeasedRange& range) {
  return is_current(range.memory) && in_use_.erase(Key{range.segment(), range.offset}) != 0;
}

void LeasePool::sealed(const LeasedRange& range) {
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    if (!take_out(range)) return;
    range.memory->in_use -= 1;
    done = forget_if_empty(range.segment());
  }
  if (done) send_segment_done(range.segment(), {});
}

void LeasePool::give_back(const LeasedRange& range) {
  if (range.is_protected) {
    give_back_protected(range);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!take_out(range)) return;
  range.memory->in_use -= 1;
  add_free(range.segment(), range.offset, range.length);
}

void LeasePool::shorten(LeasedRange& range, std::uint64_t length) {
  const std::uint64_t before = std::exchange(range.length, length);
  const std::lock_guard lock(mutex_);
  const auto used = in_use_.find(Key{range.segment(), range.offset});
  if (!is_current(range.memory) || used == in_use_.end()) return;
  used->second = length;
  add_free(range.segment(), range.offset + length, before - length);
}

Status LeasePool::protect(LeasedRange& range) {
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t first = round_up(range.offset, page);
  const std::uint64_t last = (range.offset + range.length) & ~(page - 1);
  if (last <= first) return Status::ok();
  const std::lock_guard lock(mutex_);
  range.memory->was_protected = true;
  range.is_protected = true;
  return range.memory->mapping.protect_read_only(first, last - first);
}

void LeasePool::give_back_protected(LeasedRange range) {
  // Best effort: the kernel may refuse to split a mapping further; other processes cannot write to it in any case.
  static_cast<void>(protect(range).is_ok());
  LeaseContext context{rpc_.current_connection(), 0};
  {
    const std::lock_guard lock(mutex_);
    if (!take_out(range)) return;
    context.epoch = epoch_;
  }
  send_return({range.memory, returnable(range.segment(), range.offset, range.length), false}, context, {});
}

void LeasePool::send_return(const Returning& range, const LeaseContext& context, const Interrupt& interrupt) {
  CallOptions options;
  options.interrupt = interrupt;
  options.only_on = context.current_connection;
  const bool sent =
      range.request.length == 0 || rpc_.call(MessageType::kUnlease, to_wire(range.request), options).is_ok();
  if (!range.memory) return;
  const std::uint32_t segment = range.request.segment;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    range.memory->in_use -= 1;
    if (!is_current(range.memory)) return;  // it was the segment's last, and the daemon has used the number again
    // If the return was not sent and the range was in the snapshot given to the next daemon, it is still ours. In all
    // other cases of failure the daemon takes it back with the segment, or already has it.
    const bool ours = !sent && context.current_connection && context.current_connection->broken() &&
                      context.epoch == epoch_ && range.reusable;
    if (ours) add_free(segment, range.request.offset, range.request.length);
    done = forget_if_empty(segment);
  }
  if (done) send_segment_done(segment, interrupt);
}

void LeasePool::return_idle(const Interrupt& interrupt) {
  LeaseContext context{rpc_.current_connection(), 0};
  std::vector<std::pair<LeaseContext, Returning>> returning;
  std::vector<std::uint32_t> done;
  {
    const std::lock_guard lock(mutex_);
    context.epoch = epoch_;
    returning.swap(unreturned_);
    next_lease_bytes_ = kFirstLeaseBytes;
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, memory] : segments_)
      numbers.push_back(number);
    for (const std::uint32_t number : numbers) {
      const auto memory = segments_.at(number);
      const auto first = free_.lower_bound(Key{number, 0});
      const auto last = free_.lower_bound(Key{number + 1, 0});
      if (memory->in_use == 0 && leasing_ == 0) {
        free_.erase(first, last);  // goes with the segment
        if (forget_if_empty(number)) done.push_back(number);
        continue;
      }
      const std::vector<std::pair<Key, std::uint64_t>> ranges(first, last);
      free_.erase(first, last);
      for (const auto& [key, length] : ranges) {
        const UnleaseRequest request = returnable(number, key.second, length);
        const std::uint64_t end = request.offset + request.length;
        if (request.length == 0) {
          free_.emplace(key, length);
          continue;
        }
        if (request.offset > key.second) free_.emplace(key, request.offset - key.second);
        if (key.second + length > end) free_.emplace(Key{number, end}, key.second + length - end);
        memory->in_use += 1;
        returning.emplace_back(context, Returning{memory, request, true});
      }
    }
  }
  for (const std::uint32_t number : done)
    send_segment_done(number, interrupt);
  for (const auto& [made, range] : returning)
    send_return(range, made, interrupt);
}

bool LeasePool::has_idle() const {
  const std::lock_guard lock(mutex_);
  const auto is_unused = [](const auto& entry) { return entry.second->in_use == 0; };
  const auto can_go = [](const auto& range) {
    return returnable(range.first.first, range.first.second, range.second).length != 0;
  };
  return !unreturned_.empty() || std::any_of(segments_.begin(), segments_.end(), is_unused) ||
         std::any_of(free_.begin(), free_.end(), can_go);
}

std::vector<ReportedRange> LeasePool::snapshot_for_reconnect() {
  const std::lock_guard lock(mutex_);
  epoch_ += 1;
  if (in_use_.size() + free_.size() > kMaxReportedRanges) forget_smallest_free();
  std::vector<ReportedRange> leases;
  for (const auto* ranges : {&free_, &in_use_}) {
    for (const auto& [key, length] : *ranges) {
      leases.push_back({key.first, segments_.at(key.first)->generation, key.second, length});
    }
  }
  return leases;
}

// Ranges not reported to the daemon are no longer leased; they are leased again when needed.
void LeasePool::forget_smallest_free() {
  const std::size_t room = kMaxReportedRanges - std::min<std::size_t>(in_use_.size(), kMaxReportedRanges);
  std::vector<std::pair<std::uint64_t, Key>> smallest;
  smallest.reserve(free_.size());
  for (const auto& [key, length] : free_)
    smallest.emplace_back(length, key);
  std::sort(smallest.begin(), smallest.end());
  smallest.resize(free_.size() - std::min(room, free_.size()));
  for (const auto& [length, key] : smallest)
    free_.erase(key);
}

void LeasePool::clear_in_child() {
  // The mappings do not exist in the child: leak their owners, so that nothing unmaps addresses that may be reused.
  for (auto& [number, memory] : segments_)
    memory->mapping.leak();
  segments_.clear();
  free_.clear();
  in_use_.clear();
  // Their connections' locks may be held by threads that do not exist here.
  static_cast<void>(new std::vector<std::pair<LeaseContext, Returning>>(std::move(unreturned_)));
  unreturned_.clear();
  leasing_ = 0;
  finishing_ = 0;
  new (&finished_) std::condition_variable;  // threads of the parent that may have waited do not exist here
}

}  // namespace entrepot
