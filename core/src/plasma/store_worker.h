// StoreWorker: threads for what may take long in the store (memory, reads from disk, large copies, answers of a daemon
// that stands still), so that the event loop goes on meanwhile. What waits for one thing does not hold up what waits for
// another: each lane has threads of its own.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::plasma {

// What a job may wait for. kMemory: room for a new object; kObjects: objects that are brought into the arena;
// kAnswers: the daemon, and nothing else.
enum class Lane : std::uint8_t { kMemory, kObjects, kAnswers };

class StoreWorker {
 public:
  using Completion = std::function<void()>;  // called in the loop's thread
  using Job = std::function<Completion()>;   // called in a thread of the worker

  // `threads`: of each lane. Without, complete() does the jobs.
  [[nodiscard]] static Result<std::unique_ptr<StoreWorker>> start(int threads);
  ~StoreWorker();  // waits for the jobs that run, drops the others
  StoreWorker(const StoreWorker&) = delete;
  StoreWorker& operator=(const StoreWorker&) = delete;
  StoreWorker(StoreWorker&&) = delete;
  StoreWorker& operator=(StoreWorker&&) = delete;

  void run(Lane lane, Job job);
  [[nodiscard]] int event_fd() const { return event_.get(); }  // readable when something is complete
  void complete();                                             // calls back for what is

 private:
  explicit StoreWorker(UniqueFd event) : event_(std::move(event)) {}
  static constexpr std::size_t kLanes = 3;
  void work(std::size_t lane);
  void work_here();

  UniqueFd event_;
  std::mutex mutex_;
  std::array<std::condition_variable, kLanes> added_;
  std::array<std::deque<Job>, kLanes> jobs_;  // guarded by mutex_
  std::vector<Completion> completed_;         // guarded by mutex_
  bool ending_ = false;                       // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace entrepot::plasma
