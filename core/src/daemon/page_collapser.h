// PageCollapser: a thread that makes huge pages of the small ones that were taken because somebody waited.
//
//   queued ──▶ quiet: a second after the last request for memory ──▶ collapsing, 2 MiB at a time ──▶ done
//     │                    ▲                                           │ │
//     │                    └──────────────postpone()───────────────────┘ │
//     └──cancelled──▶ gone ◀──cancelled, or the machine is short of memory
//
// Whoever reads or writes a page that is being collapsed waits until that is done, so each step is one huge page, at the
// usual priority, and three times as long as it took is a pause. What has been returned to the machine stays returned.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot {

struct CollapseJob {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
  UniqueFd fd;  // a duplicate: the segment may be dropped meanwhile
};

class PageCollapser {
 public:
  // Called by the thread when all of a segment is in huge pages.
  using Done = std::function<void(std::uint32_t segment, std::uint32_t generation)>;

  // `has_memory`: whether the machine has so many bytes to spare; called by the thread.
  PageCollapser(Done done, std::function<bool(std::uint64_t)> has_memory, std::uint64_t quiet_ms = 1000)
      : done_(std::move(done)), has_memory_(std::move(has_memory)), quiet_ms_(quiet_ms) {}
  ~PageCollapser() { stop(); }
  PageCollapser(const PageCollapser&) = delete;
  PageCollapser& operator=(const PageCollapser&) = delete;

  // Without a thread the pages stay small; the status says why there is none.
  [[nodiscard]] Status add(CollapseJob job);
  void cancel(std::uint32_t segment, std::uint32_t generation);
  void postpone();  // somebody waits for memory, or is about to write into what it got
  void stop();      // waits for the current step

 private:
  void run();
  [[nodiscard]] bool wait_until_quiet();                // false: stopped, or the job was cancelled
  [[nodiscard]] bool collapse(const CollapseJob& job);  // whether all of it is in huge pages now
  void keep_quiet_for(std::uint64_t ns);

  const Done done_;
  const std::function<bool(std::uint64_t)> has_memory_;
  const std::uint64_t quiet_ms_;
  std::thread thread_;  // guarded by the thread that calls add() and stop()
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CollapseJob> queue_;                                   // guarded by mutex_
  std::uint64_t quiet_until_ns_ = 0;                                // guarded by mutex_
  std::optional<std::pair<std::uint32_t, std::uint32_t>> current_;  // guarded by mutex_; none since it was cancelled
  bool stopping_ = false;                                           // guarded by mutex_
};

}  // namespace entrepot
