// Spill worker threads. A transfer's pieces are taken by any free worker, reads first, so that a large copy is moved by
// all of them at once. One more thread does nothing but maintenance, because requests wait for the manifest: a compressed
// or encrypted copy, which one worker moves as a whole, can take seconds.
//
//   queued ──a worker finds it an extent (writes)──▶ moving (pieces handed out one by one)
//   moving ─┬─all pieces done, header written or checked──▶ finished
//           └─a piece failed, the others done─────────────▶ finished with its error
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "os/direct_io.h"
#include "spill/space.h"
#include "spill/transfer.h"

namespace entrepot {

struct SpillTotals {
  std::uint64_t written_bytes = 0;  // of payload
  std::uint64_t stored_bytes = 0;   // on disk, without headers: less than written_bytes if some was compressed
  std::uint64_t read_bytes = 0;
  std::uint32_t pending_writes = 0;
  std::uint32_t pending_reads = 0;
};

class SpillWorkers {
 public:
  // Maintenance task run beside the transfers, never twice at a time. Returns when to run it again (monotonic clock;
  // UINT64_MAX: only when requested).
  using Maintenance = std::function<std::uint64_t()>;

  SpillWorkers(os::FileIo& io, SpillSpace& space, SpillPacking packing, Maintenance maintenance)
      : io_(io), space_(space), packing_(packing), maintenance_(std::move(maintenance)) {}
  ~SpillWorkers() { stop(); }
  SpillWorkers(const SpillWorkers&) = delete;
  SpillWorkers& operator=(const SpillWorkers&) = delete;

  // Starts that many workers, and the thread for maintenance. 0: no thread at all.
  // `event_fd` is signalled when take_finished() has results; it must outlive the workers. If it fails because not all
  // threads can be started, those that run do the work, and ensure_running() starts the others.
  [[nodiscard]] Status start(int event_fd, std::uint32_t threads);
  // Starts missing threads; a failure if there is none. Call before add().
  [[nodiscard]] Status ensure_running();
  void stop();  // waits for the pieces in progress; drops what is queued

  void add(std::unique_ptr<SpillTransfer> transfer);
  void request_maintenance();
  [[nodiscard]] bool maintenance_is_pending() const;  // requested or running
  struct Finished {
    SpillCompletion completion;
    std::uint64_t extent_used = 0;  // of a compressed copy that was written; otherwise 0
  };
  [[nodiscard]] std::vector<Finished> take_finished();
  [[nodiscard]] SpillTotals totals() const;

 private:
  struct Job {
    std::unique_ptr<SpillTransfer> transfer;
    std::uint64_t next = 0;     // first byte not handed out
    std::uint32_t running = 0;  // pieces in progress
    bool all_handed_out = false;
    Status failure;  // the first one
  };
  struct Piece {
    std::shared_ptr<Job> job;
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] Status start_missing();
  void run(bool moves);  // moves: also transfers, not only maintenance
  [[nodiscard]] bool maintenance_is_due() const;
  void run_maintenance(std::unique_lock<std::mutex>& lock);
  void begin_write(std::unique_lock<std::mutex>& lock, SpillBuffers& buffers);
  [[nodiscard]] std::optional<Piece> next_piece();
  [[nodiscard]] Status move_bytes(const Piece& piece, SpillBuffers& buffers);
  void move_piece(const Piece& piece, std::unique_lock<std::mutex>& lock, SpillBuffers& buffers);
  void finish(Job& job, std::unique_lock<std::mutex>& lock, SpillBuffers& buffers);

  os::FileIo& io_;
  SpillSpace& space_;
  const SpillPacking packing_;
  const Maintenance maintenance_;
  int event_fd_ = -1;
  std::vector<std::thread> threads_;  // guarded by the daemon's thread, like wanted_threads_
  std::uint32_t wanted_threads_ = 0;

  mutable std::mutex mutex_;  // guards all below, and the jobs
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> reads_;
  std::deque<std::shared_ptr<Job>> writes_;  // with an extent
  std::deque<std::shared_ptr<Job>> new_writes_;
  std::vector<Finished> finished_;
  SpillTotals totals_;
  bool maintenance_requested_ = false;
  bool maintenance_running_ = false;
  std::uint64_t next_maintenance_ns_ = UINT64_MAX;
  bool stopping_ = false;
};

}  // namespace entrepot
