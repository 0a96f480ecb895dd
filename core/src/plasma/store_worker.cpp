#include "plasma/store_worker.h"

#include <iterator>
#include <utility>

#include "os/events.h"
#include "os/thread.h"

namespace entrepot::plasma {

Result<std::unique_ptr<StoreWorker>> StoreWorker::start(int threads) {
  ASSIGN_OR_RETURN(UniqueFd event, os::create_event_fd());
  std::unique_ptr<StoreWorker> worker(new StoreWorker(std::move(event)));
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < threads; ++i) {
      ASSIGN_OR_RETURN(std::thread thread, os::start_thread("a thread for requests to the store",
                                                            [self = worker.get(), lane] { self->work(lane); }));
      worker->threads_.push_back(std::move(thread));
    }
  }
  return worker;
}

StoreWorker::~StoreWorker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  for (std::condition_variable& added : added_)
    added.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

void StoreWorker::run(Lane lane, Job job) {
  const auto number = static_cast<std::size_t>(lane);
  {
    const std::lock_guard lock(mutex_);
    jobs_.at(number).push_back(std::move(job));
  }
  if (threads_.empty()) return os::signal_event(event_.get());
  added_.at(number).notify_one();
}

void StoreWorker::work(std::size_t lane) {
  std::deque<Job>& jobs = jobs_.at(lane);
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      added_.at(lane).wait(lock, [&] { return ending_ || !jobs.empty(); });
      if (ending_) return;
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    Completion completion = job();
    job = nullptr;  // what it holds ends here
    {
      const std::lock_guard lock(mutex_);
      completed_.push_back(std::move(completion));
    }
    os::signal_event(event_.get());
  }
}

void StoreWorker::work_here() {
  std::deque<Job> jobs;
  {
    const std::lock_guard lock(mutex_);
    for (std::deque<Job>& lane : jobs_) {
      jobs.insert(jobs.end(), std::make_move_iterator(lane.begin()), std::make_move_iterator(lane.end()));
      lane.clear();
    }
  }
  for (Job& job : jobs) {
    Completion completion = std::exchange(job, nullptr)();
    const std::lock_guard lock(mutex_);
    completed_.push_back(std::move(completion));
  }
}

void StoreWorker::complete() {
  os::clear_event(event_.get());
  if (threads_.empty()) work_here();
  std::vector<Completion> completed;
  {
    const std::lock_guard lock(mutex_);
    completed.swap(completed_);
  }
  for (const Completion& completion : completed)
    completion();
}

}  // namespace entrepot::plasma
