#include "client/lease_pool.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/text.h"
#include "os/memfd.h"
#include "shm/layout.h"

namespace entrepot {
namespace {

constexpr std::uint32_t kMaxLeaseTries = 8;
constexpr std::uint64_t kOtherAnswerMs = 5'000;
constexpr std::uint64_t kAnswerMs = 30'000;  // beyond the time that the daemon was told to wait

std::uint64_t round_up(std::uint64_t value, std::uint64_t align) { return (value + align - 1) & ~(align - 1); }

}  // namespace

Result<LeasedRange> LeasePool::allocate(std::uint64_t length, std::uint64_t align, std::uint64_t more,
                                        std::uint32_t wait_ms, const Interrupt& interrupt) {
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(length, 1), kBlobAlign);
  for (std::uint32_t tries = 0; tries < kMaxLeaseTries; ++tries) {
    std::uint64_t want = 0;
    LeasedRange range;
    {
      const std::lock_guard lock(mutex_);
      if (carve(bytes, align, range)) return range;
      want = next_lease_bytes_;
    }
    const std::uint64_t page = os::page_bytes();
    const std::uint64_t least = round_up(bytes, page) + (tries == 0 ? 0 : align);
    RETURN_IF_ERROR(request(least, std::max(want, round_up(least + more, page)), wait_ms, interrupt));
  }
  return Status(Code::kInternal, concat("the daemon leased memory ", kMaxLeaseTries, " times without giving ",
                                        format_bytes(length), " in one piece"));
}

bool LeasePool::carve(std::uint64_t length, std::uint64_t align, LeasedRange& out) {
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
                          const Interrupt& interrupt) {
  const std::shared_ptr<void> leasing = begin_lease();
  std::uint64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    epoch = epoch_;
  }
  CallOptions options;
  options.deadline = os::Deadline::after_ms(wait_ms + kAnswerMs);
  options.interrupt = interrupt;
  options.abandoned = [this, epoch, leasing](Frame frame) {
    const Status ignored = accept(std::move(frame), epoch, false);  // nobody waits for it any more
    static_cast<void>(ignored);
  };
  ASSIGN_OR_RETURN(Frame frame,
                   rpc_.call(MessageType::kLease, to_wire(LeaseRequest{min_bytes, want_bytes, wait_ms}), options));
  return accept(std::move(frame), epoch, true);
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

Status LeasePool::accept(Frame frame, std::uint64_t epoch, bool may_wait) {
  LeaseReply reply;
  if (!from_wire(frame.body, reply)) return {Code::kInternal, "the daemon's answer to a lease cannot be read"};
  std::unique_lock lock(mutex_);
  if (frame.fds.empty() && !segments_.contains(reply.segment)) {
    if (!may_wait) return Status::ok();  // what reads answers for others cannot wait for one
    // The descriptor came with an earlier answer, which another thread is about to accept.
    finished_.wait_for(lock, std::chrono::milliseconds(kOtherAnswerMs),
                       [&] { return segments_.contains(reply.segment); });
    if (!segments_.contains(reply.segment)) {
      // It was lost, with a connection or a wait that was interrupted: start anew with this segment.
      finishing_ += 1;
      lock.unlock();
      send_unlease(UnleaseRequest{reply.segment, 0, 0, 1}, {});
      return Status::ok();
    }
  }
  auto& memory = segments_[reply.segment];
  if (memory && memory->generation != reply.segment_generation && memory->in_use == 0) memory.reset();
  if (!memory) {
    if (frame.fds.size() != 1) {
      segments_.erase(reply.segment);
      return {Code::kInternal, concat("a lease of segment ", reply.segment, " came without its descriptor")};
    }
    auto mapping = os::Mapping::map(frame.fds[0].get(), 0, reply.segment_bytes, os::Access::kReadWrite, kSegmentAlign);
    if (!mapping.is_ok()) {
      segments_.erase(reply.segment);
      return mapping.status();
    }
    if (const Status alone = mapping->dont_fork(); !alone.is_ok()) {
      segments_.erase(reply.segment);
      return alone;
    }
    memory = std::make_shared<WritableSegment>();
    memory->segment = reply.segment;
    memory->generation = reply.segment_generation;
    memory->mapping = mapping.take();
    finished_.notify_all();
  } else if (memory->generation != reply.segment_generation) {
    return {Code::kInternal, concat("segment ", reply.segment, " was replaced while this client writes it")};
  }
  const std::uint64_t bytes = memory->mapping.bytes();
  if (reply.offset > bytes || reply.length > bytes - reply.offset) {
    return {Code::kInternal, concat("a lease of segment ", reply.segment, " lies outside of it")};
  }
  if (epoch != epoch_) return Status::ok();  // unknown to the snapshot that the daemon was given: not ours
  // Parts of it may have been sealed by us and freed since: make them writable again.
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t first = reply.offset & ~(page - 1);
  const std::uint64_t last = round_up(reply.offset + reply.length, page);
  RETURN_IF_ERROR(memory->mapping.protect_read_write(first, std::min(last, bytes) - first));
  add_free(reply.segment, reply.offset, reply.length);
  finished_.notify_all();
  next_lease_bytes_ = std::min(next_lease_bytes_ * 2, kMaxLeaseBytes);
  return Status::ok();
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
  const auto found = segments_.find(segment);
  if (found == segments_.end() || found->second->in_use > 0 || leasing_ > 0) return false;
  const auto free = free_.lower_bound(Key{segment, 0});
  if (free != free_.end() && free->first.first == segment) return false;
  segments_.erase(found);
  finishing_ += 1;
  return true;
}

void LeasePool::sealed(const LeasedRange& range) {
  const std::uint64_t page = os::page_bytes();
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    if (in_use_.erase(Key{range.segment(), range.offset}) == 0) return;
    range.memory->in_use -= 1;
    const std::uint64_t first = round_up(range.offset, page);
    const std::uint64_t last = (range.offset + range.length) & ~(page - 1);
    // Best effort: the kernel may refuse to split a mapping further; others cannot write it in any case.
    if (last > first) static_cast<void>(range.memory->mapping.protect_read_only(first, last - first).is_ok());
    done = forget_if_empty(range.segment());
  }
  if (done) send_unlease(UnleaseRequest{range.segment(), 0, 0, 1}, {});
}

void LeasePool::give_back(const LeasedRange& range) {
  const std::lock_guard lock(mutex_);
  if (in_use_.erase(Key{range.segment(), range.offset}) == 0) return;
  range.memory->in_use -= 1;
  add_free(range.segment(), range.offset, range.length);
}

void LeasePool::give_back_protected(const LeasedRange& range) {
  const std::uint64_t page = os::page_bytes();
  UnleaseRequest request{range.segment(), range.offset, range.length, 0};
  {
    const std::lock_guard lock(mutex_);
    if (in_use_.erase(Key{range.segment(), range.offset}) == 0) return;
    range.memory->in_use -= 1;
    const std::uint64_t first = round_up(range.offset, page);
    const std::uint64_t last = (range.offset + range.length) & ~(page - 1);
    if (last > first) static_cast<void>(range.memory->mapping.protect_read_only(first, last - first).is_ok());
    if (forget_if_empty(range.segment())) request.done_with_segment = 1;
  }
  send_unlease(request, {});
}

void LeasePool::return_idle(const Interrupt& interrupt) {
  std::vector<UnleaseRequest> requests;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, length] : free_)
      requests.push_back({key.first, key.second, length, 0});
    free_.clear();
    next_lease_bytes_ = kFirstLeaseBytes;
    // From the back, so that it is the last message about a segment that says that it is done with.
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      if (forget_if_empty(request->segment)) request->done_with_segment = 1;
    }
    std::vector<std::uint32_t> empty;
    for (const auto& [number, memory] : segments_)
      empty.push_back(number);
    for (const std::uint32_t number : empty) {
      if (forget_if_empty(number)) requests.push_back({number, 0, 0, 1});
    }
  }
  for (const auto& request : requests)
    send_unlease(request, interrupt);
}

bool LeasePool::has_idle() const {
  const std::lock_guard lock(mutex_);
  return !segments_.empty() && (!free_.empty() || in_use_.empty());
}

void LeasePool::send_unlease(const UnleaseRequest& request, const Interrupt& interrupt) {
  CallOptions options;
  options.interrupt = interrupt;
  // Should it fail, the daemon learns of it at the latest when this client goes.
  static_cast<void>(rpc_.call(MessageType::kUnlease, to_wire(request), options).is_ok());
  if (request.done_with_segment == 0) return;
  const std::lock_guard lock(mutex_);
  finishing_ -= 1;
  finished_.notify_all();
}

std::vector<HeldRange> LeasePool::snapshot_for_reconnect() {
  const std::lock_guard lock(mutex_);
  epoch_ += 1;
  std::vector<HeldRange> held;
  for (const auto* ranges : {&free_, &in_use_}) {
    for (const auto& [key, length] : *ranges) {
      held.push_back({key.first, segments_.at(key.first)->generation, key.second, length});
    }
  }
  return held;
}

void LeasePool::clear_in_child() {
  // The mappings are not there in the child: leak the owners, so that nothing unmaps addresses that may be in use anew.
  for (auto& [number, memory] : segments_)
    memory->mapping.leak();
  segments_.clear();
  free_.clear();
  in_use_.clear();
  leasing_ = 0;
  finishing_ = 0;
  new (&finished_) std::condition_variable;  // the parent's other threads, which may have waited, are not here
}

}  // namespace entrepot
