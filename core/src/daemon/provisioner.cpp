#include "daemon/provisioner.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/align.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/log.h"
#include "os/mapping.h"
#include "os/memfd.h"
#include "os/memory_info.h"
#include "os/process.h"
#include "os/thread.h"

namespace entrepot {

namespace {

// Between two checks of the machine's memory, of urgent work, and of how long it takes: up to 4 ms for each huge page.
constexpr std::uint64_t kHugeStepBytes = 8ULL << 20;
constexpr std::uint64_t kSmallStepBytes = 16ULL << 20;
constexpr std::uint64_t kPunchStepBytes = kSmallStepBytes;  // no less, so that a step finds what it takes
constexpr std::uint64_t kParallelBytes = 128ULL << 20;      // for less, starting a thread does not pay
constexpr std::uint64_t kMinReserveBytes = 128ULL << 20;
constexpr std::uint64_t kReserveShare = 32;  // 1/n of the tightest limit is left to everybody else
constexpr std::uint64_t kShortReserves = 2;  // with less than so many reserves left, the machine is short of memory
constexpr double kShortStallPercent = 10;    // of the last 10 s in which somebody waited for memory

std::uint64_t reserve_of(const os::MemoryInfo& memory) {
  return std::max(kMinReserveBytes, memory.ceiling() / kReserveShare);
}

Status check_headroom(std::uint64_t bytes) {
  ASSIGN_OR_RETURN(const os::MemoryInfo memory, os::read_memory_info());
  const std::uint64_t reserve = reserve_of(memory);
  if (memory.headroom() >= bytes + reserve) return Status::ok();
  return Status(
      Code::kStoreFull,
      concat(memory.describe_headroom(), ", and the store keeps a reserve of ", format_bytes(reserve), " free, so ",
             format_bytes(bytes), " more cannot be allocated: free memory, or start the store with a smaller --size"),
      true);
}

bool punch(std::uint32_t segment, int fd, std::uint64_t offset, std::uint64_t bytes) {
  const Status punched = os::punch(fd, offset, bytes);
  if (!punched.is_ok()) log_warning("segment ", segment, ": cannot release its pages: ", punched.message());
  return punched.is_ok();
}

}  // namespace

bool machine_is_short(const std::string& root) {
  const Result<os::MemoryInfo> memory = os::read_memory_info(root);
  if (memory.is_ok() && memory->headroom() < kShortReserves * reserve_of(*memory)) return true;
  return os::read_memory_stall_percent(root) >= kShortStallPercent;
}

namespace {

// Fills a part of the memfd's mapping, between two multiples of the page size. Without a choice, with huge pages as long
// as the kernel has any.
Result<Filled> fill_part(int fd, const os::Mapping& mapping, std::uint64_t offset, std::uint64_t end,
                         const std::function<bool()>& should_continue, std::optional<PageChoice> choice) {
  bool huge = offset % os::kHugePageBytes == 0 && end % os::kHugePageBytes == 0;
  bool populate = true;
  bool any_small = false;
  while (offset < end) {
    if (!should_continue()) return Status(Code::kTimeout, "provisioning was cancelled");
    const bool takes_huge = huge && (!choice || choice->is_huge());
    const std::uint64_t step = std::min(takes_huge ? kHugeStepBytes : kSmallStepBytes, end - offset);
    RETURN_IF_ERROR(check_headroom(step));
    const std::uint64_t began_ns = os::monotonic_ns();
    if (takes_huge) {
      const auto collapsed = os::collapse(mapping.data() + offset, step);
      huge = collapsed.is_ok() && *collapsed;
      if (!huge) continue;
      if (choice) choice->took_huge(step, os::monotonic_ns() - began_ns);
      offset += step;
      continue;
    }
    any_small = true;
    if (populate) {
      const Status populated = os::populate_write(mapping.data() + offset, step);
      if (populated.is_ok()) {
        if (choice) choice->took_small(step, os::monotonic_ns() - began_ns);
        offset += step;
        continue;
      }
      if (populated.code() != Code::kUnsupportedType) return populated;
      populate = false;
    }
    RETURN_IF_ERROR(os::reserve(fd, offset, step));
    offset += step;
  }
  return Filled{any_small ? MemoryKind::kSmallPages : MemoryKind::kHugePages, huge && any_small};
}

}  // namespace

Result<Filled> fill_warm(int fd, std::uint64_t bytes, const std::function<bool()>& should_continue, bool is_urgent,
                         std::uint64_t slow_huge_page_ns) {
  const std::optional<PageChoice> choice = is_urgent ? std::optional<PageChoice>(slow_huge_page_ns) : std::nullopt;
  ASSIGN_OR_RETURN(const os::Mapping mapping,
                   os::Mapping::map(fd, 0, bytes, os::Access::kReadWrite, os::kHugePageBytes));
  if (!is_urgent || bytes < kParallelBytes || os::cpu_count() < 2)
    return fill_part(fd, mapping, 0, bytes, should_continue, choice);
  const std::uint64_t middle = round_up(bytes / 2, os::kHugePageBytes);
  std::atomic<bool> is_cancelled = false;
  Result<Filled> second = Filled{};
  auto helper = os::start_thread("the thread that helps to allocate memory", [&] {
    second =
        fill_part(fd, mapping, middle, bytes, [&] { return !is_cancelled.load(std::memory_order_relaxed); }, choice);
  });
  if (!helper.is_ok()) return fill_part(fd, mapping, 0, bytes, should_continue, choice);
  const Result<Filled> first = fill_part(fd, mapping, 0, middle, should_continue, choice);
  if (!first.is_ok()) is_cancelled.store(true, std::memory_order_relaxed);
  helper->join();
  if (!first.is_ok()) return first;
  if (!second.is_ok()) return second;
  const bool is_uniform = first->kind == second->kind;
  return Filled{is_uniform ? first->kind : MemoryKind::kSmallPages, first->could_be_huge || second->could_be_huge};
}

Provisioner::Provisioner(std::uint64_t slow_huge_page_ns, std::uint64_t quiet_ms)
    : slow_huge_page_ns_(slow_huge_page_ns),
      collapser_([this](std::uint32_t segment,
                        std::uint32_t generation) { finish({segment, generation, MemoryKind::kHugePages, {}}); },
                 [](std::uint64_t bytes) { return check_headroom(bytes).is_ok(); }, quiet_ms) {}

Status Provisioner::start(int event_fd) {
  event_fd_ = event_fd;
  return ensure_running();
}

// Signals belong to the event loop: the thread inherits the mask in which they are already blocked.
Status Provisioner::ensure_running() {
  if (event_fd_ < 0 || thread_.joinable()) return Status::ok();  // start() sets what the thread reads
  ASSIGN_OR_RETURN(thread_, os::start_thread("the thread that allocates memory", [this] { run(); }));
  return Status::ok();
}

void Provisioner::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  collapser_.stop();
}

void Provisioner::add(ProvisionJob job) {
  if (job.urgent) collapser_.postpone();
  const Status running = ensure_running();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_.erase({job.segment, job.generation});
    if (running.is_ok()) {
      enqueue(std::move(job), false);
    } else {
      finished_.push_back({job.segment, job.generation, MemoryKind::kUnknown, running});
      os::signal_event(event_fd_);
    }
  }
  changed_.notify_all();
}

void Provisioner::enqueue(ProvisionJob job, bool in_front) {
  const auto first_patient =
      std::find_if(queue_.begin(), queue_.end(), [](const auto& queued_job) { return !queued_job.urgent; });
  if (job.urgent) {
    queue_.insert(in_front ? queue_.begin() : first_patient, std::move(job));
  } else {
    queue_.insert(in_front ? first_patient : queue_.end(), std::move(job));
  }
}

void Provisioner::cancel(std::uint32_t segment, std::uint32_t generation) {
  collapser_.cancel(segment, generation);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto queued = std::find_if(queue_.begin(), queue_.end(), [&](const auto& queued_job) {
    return queued_job.segment == segment && queued_job.generation == generation;
  });
  if (queued != queue_.end()) {
    queue_.erase(queued);
  } else {
    cancelled_.insert({segment, generation});  // possibly being filled; run() removes what it finishes
  }
}

void Provisioner::return_pages(std::uint32_t segment, UniqueFd fd, std::uint64_t bytes) {
  static_cast<void>(ensure_running());  // otherwise they are returned once there is a thread, or with the descriptor
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_punch_.push_back({segment, bytes, std::move(fd)});
  }
  changed_.notify_all();
}

bool Provisioner::punch_next_step() {
  PendingPunch pending;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (to_punch_.empty()) return false;
    pending = std::move(to_punch_.front());
    to_punch_.pop_front();
  }
  const std::uint64_t piece = std::min(kPunchStepBytes, pending.bytes - pending.punched);
  if (!punch(pending.segment, pending.fd.get(), pending.punched, piece)) return true;
  pending.punched += piece;
  if (pending.punched == pending.bytes) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  to_punch_.push_front(std::move(pending));
  return true;
}

void Provisioner::make_room_for(const ProvisionJob& job) {
  bool more = punch_next_step();
  if (job.urgent) {
    while (more && !check_headroom(kSmallStepBytes).is_ok())
      more = punch_next_step();
    return;
  }
  while (more && !has_urgent_job() && !cancelled(job))
    more = punch_next_step();
}

std::vector<Provisioned> Provisioner::take_finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(finished_, {});
}

void Provisioner::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty() || !to_punch_.empty(); });
    if (stopping_) return;  // process exit returns everything
    if (!to_punch_.empty() && (queue_.empty() || !queue_.front().urgent)) {
      lock.unlock();
      punch_next_step();
      lock.lock();
      continue;
    }
    ProvisionJob job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::optional<Provisioned> result = fill(job);
    lock.lock();
    if (!result) {
      enqueue(std::move(job), true);
      continue;
    }
    const bool dropped = cancelled_.erase({job.segment, job.generation}) > 0;
    if (!dropped && !stopping_) finished_.push_back(std::move(*result));
    if (queue_.empty()) cancelled_.clear();
    lock.unlock();
    os::signal_event(event_fd_);
    lock.lock();
  }
}

void Provisioner::finish(Provisioned result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stopping_) finished_.push_back(std::move(result));
  }
  os::signal_event(event_fd_);
}

std::optional<Provisioned> Provisioner::fill(ProvisionJob& job) {
  Provisioned result{job.segment, job.generation, MemoryKind::kUnknown, {}};
  bool yields = false;
  const auto filled = fill_warm(
      job.fd.get(), job.bytes,
      [&] {
        make_room_for(job);
        if (cancelled(job)) return false;
        yields = !job.urgent && has_urgent_job();
        return !yields;
      },
      job.urgent, slow_huge_page_ns_);
  if (filled.is_ok()) {
    result.kind = filled->kind;
    if (filled->could_be_huge && !cancelled(job)) {
      const Status added = collapser_.add({job.segment, job.generation, job.bytes, std::move(job.fd)});
      if (!added.is_ok()) log_info("segment ", job.segment, " keeps its small pages: ", added.message());
    }
    return result;
  }
  if (yields) return std::nullopt;
  result.status = filled.status();
  punch(job.segment, job.fd.get(), 0, job.bytes);
  return result;
}

bool Provisioner::has_urgent_job() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !queue_.empty() && queue_.front().urgent;
}

bool Provisioner::cancelled(const ProvisionJob& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopping_ || cancelled_.contains({job.segment, job.generation});
}

}  // namespace entrepot
