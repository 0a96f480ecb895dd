#include "client/value_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/align.h"
#include "client/client.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHugeFromBytes = 2U << 20;  // aligned for huge pages from this size on
// Each is one mapping or more, of 65,530 that a process has by default, and one range in a reconnecting client's report.
constexpr std::size_t kMaxAllocations = 2'048;

}  // namespace

ValueMemory& ValueMemory::instance() {
  // Never destroyed: values are freed during exit, too.
  static const std::shared_ptr<ValueMemory>* const only = [] {
    auto* const created = new std::shared_ptr<ValueMemory>(new ValueMemory);
    watch_forks(*created);
    return created;
  }();
  return **only;
}

// ---- what the allocators of libraries use ----

std::uint64_t ValueMemory::activate(CurrentClient client) {
  const std::lock_guard lock(mutex_);
  active_.emplace_back(next_number_, std::move(client));
  is_active_.store(true, std::memory_order_relaxed);
  return next_number_++;
}

void ValueMemory::deactivate(std::uint64_t number) {
  CurrentClient ended;
  {
    const std::lock_guard lock(mutex_);
    const auto match = std::ranges::find(active_, number, [](const auto& entry) { return entry.first; });
    if (match == active_.end()) return;
    ended = std::move(match->second);
    active_.erase(match);
    is_active_.store(!active_.empty(), std::memory_order_relaxed);
  }
  if (const std::shared_ptr<Client> client = ended()) client->value_freed();
}

std::shared_ptr<Client> ValueMemory::active_client() const {
  if (!is_active()) return nullptr;
  CurrentClient client;
  {
    const std::lock_guard lock(mutex_);
    if (active_.empty() || allocations_.size() >= kMaxAllocations) return nullptr;
    client = active_.back().second;
  }
  return client();  // takes locks of its own
}

std::byte* ValueMemory::allocate(std::uint64_t bytes, bool zeroed) {
  if (bytes < kMinValueBytes) return nullptr;
  try {
    return allocate_in_store(bytes, zeroed);
  } catch (const std::bad_alloc&) {  // the callers are C libraries, which cannot handle it
    return nullptr;
  }
}

std::byte* ValueMemory::allocate_in_store(std::uint64_t bytes, bool zeroed) {
  const std::shared_ptr<Client> client = active_client();
  if (!client) return nullptr;
  const auto refuse = [this](const Status& reason) -> std::byte* {
    const std::lock_guard lock(mutex_);
    counts_.refused += 1;
    counts_.last_refusal = reason.message();
    return nullptr;
  };
  auto range = client->lease_for_value(round_up(bytes, os::page_bytes()));
  if (!range.is_ok()) return refuse(range.status());
  Allocation made;
  auto mapping = os::Mapping::map(range->memory->fd.get(), range->offset, range->length, os::Access::kReadWrite,
                                  os::kHugePageBytes);
  Status mapped = mapping.status();
  if (mapped.is_ok()) {
    made.mapping = mapping.take();
    mapped = made.mapping.dont_fork();
  }
  if (mapped.is_ok()) {
    // At once, because a fault for each small page takes twice as long. Best effort: the rest is faulted in on use.
    const bool is_small = range->memory->kind == MemoryKind::kSmallPages;
    const std::uint64_t in_small_pages = is_small ? range->length : range->length % os::kHugePageBytes;
    (void)os::populate_write(made.mapping.data() + (range->length - in_small_pages), in_small_pages);
  }
  if (!mapped.is_ok()) {
    client->return_value_lease(*range);
    return refuse(mapped);
  }
  std::byte* const start = made.mapping.data();
  made.bytes = bytes;
  made.range = range.take();
  made.client = client;
  made.owner = client->number();
  {
    const std::lock_guard lock(mutex_);
    counts_.allocated += 1;
    counts_.bytes += bytes;
    allocations_.emplace(start, std::move(made));
    live_.store(allocations_.size(), std::memory_order_release);
  }
  if (zeroed) std::memset(start, 0, bytes);  // other values were there before
  return start;
}

bool ValueMemory::may_be_allocated(const void* address) const {
  return live_.load(std::memory_order_acquire) != 0 &&
         (reinterpret_cast<std::uintptr_t>(address) & (os::page_bytes() - 1)) == 0;
}

std::optional<std::uint64_t> ValueMemory::bytes_at(const void* address) const {
  if (!may_be_allocated(address)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(static_cast<const std::byte*>(address));
  if (allocated == allocations_.end()) return std::nullopt;
  return allocated->second.bytes;
}

bool ValueMemory::resize(void* address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(static_cast<const std::byte*>(address));
  if (allocated == allocations_.end() || bytes > allocated->second.mapping.bytes()) return false;
  // At least half of it must remain in use, else other memory is better; a put seals all of it.
  if (bytes < kMinValueBytes || bytes < allocated->second.mapping.bytes() / 2) return false;
  counts_.bytes = counts_.bytes - allocated->second.bytes + bytes;
  allocated->second.bytes = bytes;
  return true;
}

bool ValueMemory::free(void* address) {
  if (!may_be_allocated(address)) return false;
  Allocation freed;
  {
    const std::lock_guard lock(mutex_);
    const auto allocated = allocations_.find(static_cast<const std::byte*>(address));
    if (allocated == allocations_.end()) return false;
    freed = std::move(allocated->second);
    allocations_.erase(allocated);
    live_.store(allocations_.size(), std::memory_order_release);
    counts_.bytes -= freed.bytes;
  }
  freed.mapping.reset();  // before anybody else can get the range
  freed.pin.reset();
  const auto client = freed.client.lock();
  if (!client) return true;
  if (freed.state == State::kSealed) client->value_released(freed.range.length);
  if (freed.has_range()) {
    client->return_value_lease(freed.range);
    client->value_freed();
  }
  return true;
}

ValueMemoryCounts ValueMemory::counts() const {
  const std::lock_guard lock(mutex_);
  ValueMemoryCounts counts = counts_;
  counts.allocations = allocations_.size();
  return counts;
}

// ---- put ----

std::optional<ValueMemory::Place> ValueMemory::locate(const Client& client, const void* data,
                                                      std::uint64_t length) const {
  if (live_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const auto* const address = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const auto& [start, allocation] = *std::prev(after);
  const auto offset = static_cast<std::uint64_t>(address - start);
  if (offset > allocation.bytes || length > allocation.bytes - offset) return std::nullopt;
  if (allocation.state != State::kWritable || allocation.owner != client.number()) return std::nullopt;
  return Place{allocation.mapping.data(), offset, allocation.bytes};
}

std::optional<LeasedRange> ValueMemory::freeze(const std::byte* start) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(start);
  if (allocated == allocations_.end() || allocated->second.state != State::kWritable) return std::nullopt;
  Allocation& allocation = allocated->second;
  if (!allocation.mapping.become_copy_on_write(allocation.range.memory->fd.get(), allocation.range.offset).is_ok()) {
    return std::nullopt;
  }
  allocation.state = State::kFrozen;
  LeasedRange range = allocation.range;
  // What was cut off by resize() is given back by the put.
  allocation.range.length = round_up(allocation.bytes, os::page_bytes());
  return range;
}

bool ValueMemory::sealed(const std::byte* start, std::shared_ptr<HeldPin> pin) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(start);
  if (allocated == allocations_.end()) return false;
  counts_.sealed += 1;
  if (allocated->second.state != State::kFrozen) return false;  // private since a fork
  allocated->second.state = State::kSealed;
  allocated->second.pin = std::move(pin);
  return true;
}

bool ValueMemory::not_sealed(const std::byte* start) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(start);
  if (allocated == allocations_.end() || allocated->second.state != State::kFrozen) return false;
  allocated->second.state = State::kKept;
  return true;
}

void ValueMemory::outcome_unknown(const std::byte* start) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocations_.find(start);
  if (allocated != allocations_.end()) static_cast<void>(detach(allocated->second));
}

std::optional<LeasedRange> ValueMemory::detach(Allocation& allocation) {
  if (allocation.state == State::kSealed || allocation.state == State::kPrivate) return std::nullopt;
  if (allocation.state == State::kWritable) {
    const int fd = allocation.range.memory->fd.get();
    if (!allocation.mapping.become_copy_on_write(fd, allocation.range.offset).is_ok()) return std::nullopt;
    allocation.state = State::kKept;
  }
  if (!os::detach_from_file(allocation.mapping.data(), allocation.mapping.bytes()).is_ok()) return std::nullopt;
  const bool had_range = allocation.has_range();
  allocation.state = State::kPrivate;
  LeasedRange range = std::move(allocation.range);
  return had_range ? std::optional(std::move(range)) : std::nullopt;
}

void ValueMemory::make_private(Client& client) {
  std::vector<LeasedRange> unused;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [start, allocation] : allocations_) {
      if (allocation.owner != client.number()) continue;
      if (auto range = detach(allocation)) unused.push_back(*std::move(range));
    }
  }
  for (const LeasedRange& range : unused)
    client.return_value_lease(range);
}

// ---- fork ----

// Children inherit values as they are, and neither process sees what the other writes: shared memory cannot do that, so
// what is not sealed becomes private. The lease pools are locked by now; ranges are returned after the fork.
void ValueMemory::before_fork() {
  mutex_.lock();
  for (auto& [start, allocation] : allocations_) {
    if (auto range = detach(allocation)) {
      if (auto client = allocation.client.lock()) after_fork_.emplace_back(std::move(client), *std::move(range));
    }
    // Without memory for a copy, touching it in the child raises SIGSEGV; wrong bytes would be worse.
    if (!allocation.is_inherited()) static_cast<void>(allocation.mapping.dont_fork().is_ok());
  }
}

void ValueMemory::after_fork_in_parent() { mutex_.unlock(); }

void ValueMemory::unlocked_in_parent() {
  decltype(after_fork_) unused;
  {
    const std::lock_guard lock(mutex_);
    unused.swap(after_fork_);
  }
  for (const auto& [client, range] : unused)
    client->return_value_lease(range);
}

void ValueMemory::after_fork_in_child() {
  // The parent returns the ranges. Not destroyed: their memory is not mapped here.
  for (const auto& [client, range] : after_fork_)
    client->value_released(range.length);
  static_cast<void>(new decltype(after_fork_)(std::move(after_fork_)));
  after_fork_.clear();
  for (auto& [start, allocation] : allocations_) {
    if (!allocation.is_inherited()) allocation.mapping.leak();  // not mapped here: others may use the addresses
    if (allocation.state != State::kSealed) allocation.client.reset();
  }
  mutex_.unlock();
}

}  // namespace entrepot
