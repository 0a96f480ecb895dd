#include "spill/workers.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "os/clock.h"
#include "os/events.h"
#include "os/log.h"
#include "os/thread.h"
#include "spill/packed_transfer.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kLongestWaitNs = 60'000'000'000ULL;  // distant times would overflow the clock

}  // namespace

Status SpillWorkers::start(int event_fd, std::uint32_t threads) {
  event_fd_ = event_fd;
  wanted_threads_ = threads == 0 ? 0 : threads + 1;
  return start_missing();
}

// Signals belong to the event loop: the threads inherit the mask in which they are already blocked.
Status SpillWorkers::start_missing() {
  while (threads_.size() < wanted_threads_) {
    const bool moves = threads_.size() + 1 < wanted_threads_;
    ASSIGN_OR_RETURN(std::thread thread,
                     os::start_thread("a thread that reads and writes spill files", [this, moves] { run(moves); }));
    threads_.push_back(std::move(thread));
  }
  return Status::ok();
}

Status SpillWorkers::ensure_running() {
  Status started = start_missing();
  return threads_.empty() ? started : Status::ok();
}

void SpillWorkers::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wanted_threads_ = 0;
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
}

void SpillWorkers::add(std::unique_ptr<SpillTransfer> transfer) {
  auto job = std::make_shared<Job>();
  job->transfer = std::move(transfer);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (job->transfer->is_read) {
      ++totals_.pending_reads;
      reads_.push_back(std::move(job));
    } else {
      ++totals_.pending_writes;
      new_writes_.push_back(std::move(job));
    }
  }
  changed_.notify_all();
}

void SpillWorkers::request_maintenance() {
  static_cast<void>(ensure_running());  // if there is no thread, the next request or transfer tries again
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    maintenance_requested_ = true;
  }
  changed_.notify_one();
}

std::vector<SpillWorkers::Finished> SpillWorkers::take_finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(finished_, {});
}

bool SpillWorkers::maintenance_is_pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return maintenance_requested_ || maintenance_running_;
}

SpillTotals SpillWorkers::totals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return totals_;
}

bool SpillWorkers::maintenance_is_due() const {
  return !maintenance_running_ && (maintenance_requested_ || os::monotonic_ns() >= next_maintenance_ns_);
}

void SpillWorkers::run(bool moves) {
  SpillBuffers buffers;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_work = [this, moves] {
    return stopping_ || maintenance_is_due() ||
           (moves && (!reads_.empty() || !writes_.empty() || !new_writes_.empty()));
  };
  while (true) {
    if (!has_work()) {
      const std::uint64_t now = os::monotonic_ns();
      if (next_maintenance_ns_ != UINT64_MAX && !maintenance_running_) {
        const std::uint64_t left = std::min(next_maintenance_ns_ - std::min(now, next_maintenance_ns_), kLongestWaitNs);
        changed_.wait_for(lock, std::chrono::nanoseconds(left), has_work);
      } else {
        changed_.wait(lock, has_work);
      }
    }
    if (stopping_) return;
    if (maintenance_is_due()) {
      run_maintenance(lock);
    } else if (const auto piece = next_piece()) {
      move_piece(*piece, lock, buffers);
    } else if (!new_writes_.empty()) {
      begin_write(lock, buffers);
    }
  }
}

void SpillWorkers::run_maintenance(std::unique_lock<std::mutex>& lock) {
  maintenance_requested_ = false;
  next_maintenance_ns_ = UINT64_MAX;
  maintenance_running_ = true;
  lock.unlock();
  const std::uint64_t next_ns = maintenance_();
  lock.lock();
  maintenance_running_ = false;
  next_maintenance_ns_ = next_ns;
  if (maintenance_requested_) changed_.notify_one();
}

// Reads are finished before writes continue.
std::optional<SpillWorkers::Piece> SpillWorkers::next_piece() {
  auto& queue = reads_.empty() ? writes_ : reads_;
  if (queue.empty()) return std::nullopt;
  Piece piece;
  piece.job = queue.front();
  Job& job = *piece.job;
  piece.at = job.next;
  const std::uint64_t left = job.transfer->length - job.next;
  piece.bytes = is_single_worker(*job.transfer) ? left : std::min(kSpillPieceBytes, left);
  job.next += piece.bytes;
  ++job.running;
  if (job.next == job.transfer->length) {
    job.all_handed_out = true;
    queue.pop_front();
  }
  return piece;
}

void SpillWorkers::begin_write(std::unique_lock<std::mutex>& lock, SpillBuffers& buffers) {
  const std::shared_ptr<Job> job = std::move(new_writes_.front());
  new_writes_.pop_front();
  lock.unlock();
  SpillTransfer& transfer = *job->transfer;
  if (packing_.codec != SpillCodec::kNone) {
    const Result<bool> worth = is_worth_packing(transfer, packing_, buffers);
    if (!worth.is_ok()) log_warning("spilling uncompressed: ", worth.status().message());
    if (worth.is_ok() && *worth) transfer.codec = packing_.codec;
  }
  auto extent = space_.allocate(extent_bytes(transfer.length, transfer.cipher != nullptr));
  lock.lock();
  if (extent.is_ok()) {
    job->transfer->extent = std::move(extent).value();
    writes_.push_back(job);
    changed_.notify_all();
    return;
  }
  job->failure = extent.status();
  finish(*job, lock, buffers);
}

Status SpillWorkers::move_bytes(const Piece& piece, SpillBuffers& buffers) {
  SpillTransfer& transfer = *piece.job->transfer;
  if (is_single_worker(transfer)) {
    return transfer.is_read ? read_packed(io_, transfer, buffers) : write_packed(io_, transfer, packing_, buffers);
  }
  return transfer.is_read ? read_piece(io_, transfer, piece.at, piece.bytes, buffers)
                          : write_piece(io_, transfer, piece.at, piece.bytes, buffers);
}

void SpillWorkers::move_piece(const Piece& piece, std::unique_lock<std::mutex>& lock, SpillBuffers& buffers) {
  Job& job = *piece.job;
  SpillTransfer& transfer = *job.transfer;
  lock.unlock();
  const Status moved = move_bytes(piece, buffers);
  lock.lock();
  --job.running;
  if (!moved.is_ok()) {
    if (job.failure.is_ok()) job.failure = moved;
    if (!job.all_handed_out) {  // the rest is pointless
      auto& queue = transfer.is_read ? reads_ : writes_;
      queue.erase(std::find(queue.begin(), queue.end(), piece.job));
      job.all_handed_out = true;
    }
  }
  if (job.all_handed_out && job.running == 0) finish(job, lock, buffers);
}

void SpillWorkers::finish(Job& job, std::unique_lock<std::mutex>& lock, SpillBuffers& buffers) {
  SpillTransfer& transfer = *job.transfer;
  lock.unlock();
  Status status = job.failure;  // no other thread has this job any more
  SpillCompletion completion{transfer.ticket, transfer.is_read, {}, 0};
  std::uint64_t stored = transfer.length;
  if (transfer.is_read) {
    if (status.is_ok()) status = check_copy(transfer);
  } else if (transfer.extent.file != nullptr) {
    if (is_packed(transfer)) {
      stored = std::accumulate(transfer.block_bytes.begin(), transfer.block_bytes.end(), std::uint64_t{0});
      if (status.is_ok()) space_.shrink(transfer.extent, transfer.extent_used);
    } else if (status.is_ok() && !is_single_worker(transfer) && !is_single_piece(transfer)) {
      status = write_header(io_, transfer, buffers);
    }
    const SpillPosition place{transfer.extent.file->number, transfer.extent.offset};
    if (status.is_ok()) {
      completion.location = pack_location(place, transfer.key);
    } else {
      space_.write_failed(transfer.extent, status);
    }
  }
  completion.status = status;
  lock.lock();
  --(transfer.is_read ? totals_.pending_reads : totals_.pending_writes);
  if (status.is_ok()) {
    (transfer.is_read ? totals_.read_bytes : totals_.written_bytes) += transfer.length;
    if (!transfer.is_read) totals_.stored_bytes += stored;
  }
  finished_.push_back({std::move(completion), transfer.extent_used});
  os::signal_event(event_fd_);
}

}  // namespace entrepot
