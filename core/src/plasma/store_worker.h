// StoreWorker: threads for what may take long in the store (memory, reads from disk, large copies), so that the event
// loop goes on meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace entrepot::plasma {

class StoreWorker {
 public:
  using Completion = std::function<void()>;  // called in the loop's thread
  using Job = std::function<Completion()>;   // called in a thread of the worker

  // Without threads, complete() does the jobs.
  [[nodiscard]] static Result<std::unique_ptr<StoreWorker>> start(int threads);
  ~StoreWorker();  // waits for the jobs that run, drops the others
  StoreWorker(const StoreWorker&) = delete;
  StoreWorker& operator=(const StoreWorker&) = delete;
  StoreWorker(StoreWorker&&) = delete;
  StoreWorker& operator=(StoreWorker&&) = delete;

  void run(Job job);
  [[nodiscard]] int event_fd() const { return event_.get(); }  // readable when something is complete
  void complete();                                             // calls back for what is

 private:
  explicit StoreWorker(UniqueFd event) : event_(std::move(event)) {}
  void work();
  void work_here();

  UniqueFd event_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Job> jobs_;               // guarded by mutex_
  std::vector<Completion> completed_;  // guarded by mutex_
  bool ending_ = false;                // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace entrepot::plasma
