#include "daemon/page_collapser.h"

#include <algorithm>
#include <chrono>

#include "os/clock.h"
#include "os/mapping.h"
#include "os/thread.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kPauseFactor = 3;

}  // namespace

Status PageCollapser::add(CollapseJob job) {
  if (!thread_.joinable()) {
    ASSIGN_OR_RETURN(thread_, os::start_thread("the thread that makes huge pages", [this] { run(); }));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  postpone();
  return Status::ok();
}

void PageCollapser::cancel(std::uint32_t segment, std::uint32_t generation) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [&](const auto& job) { return job.segment == segment && job.generation == generation; });
    if (current_ == std::pair(segment, generation)) current_.reset();
  }
  changed_.notify_all();
}

void PageCollapser::postpone() {
  keep_quiet_for(quiet_ms_ * 1'000'000);
  changed_.notify_all();
}

void PageCollapser::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageCollapser::keep_quiet_for(std::uint64_t ns) {
  const std::lock_guard lock(mutex_);
  quiet_until_ns_ = std::max(quiet_until_ns_, os::monotonic_ns() + ns);
}

void PageCollapser::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const CollapseJob job = std::move(queue_.front());
    queue_.pop_front();
    current_.emplace(job.segment, job.generation);
    lock.unlock();
    const bool is_huge = collapse(job);
    lock.lock();
    const bool is_wanted = current_.has_value() && !stopping_;
    current_.reset();
    if (!is_huge || !is_wanted) continue;
    lock.unlock();
    done_(job.segment, job.generation);
    lock.lock();
  }
}

bool PageCollapser::wait_until_quiet() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && current_) {
    const std::uint64_t now_ns = os::monotonic_ns();
    if (now_ns >= quiet_until_ns_) return true;
    changed_.wait_for(lock, std::chrono::nanoseconds(quiet_until_ns_ - now_ns));
  }
  return false;
}

bool PageCollapser::collapse(const CollapseJob& job) {
  const auto mapping = os::Mapping::map(job.fd.get(), 0, job.bytes, os::Access::kReadWrite, os::kHugePageBytes);
  if (!mapping.is_ok()) return false;  // its pages stay small
  bool is_huge = job.bytes % os::kHugePageBytes == 0;
  for (std::uint64_t offset = 0; offset + os::kHugePageBytes <= job.bytes; offset += os::kHugePageBytes) {
    if (!wait_until_quiet() || !has_memory_(os::kHugePageBytes)) return false;
    const std::uint64_t began_ns = os::monotonic_ns();
    is_huge = os::collapse_populated(mapping->data() + offset, os::kHugePageBytes) && is_huge;
    keep_quiet_for(kPauseFactor * (os::monotonic_ns() - began_ns));
  }
  return is_huge;
}

}  // namespace entrepot
