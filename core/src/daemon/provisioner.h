// The provisioner: a thread that makes memory warm ahead of demand, so that no client's copy pays for page faults.
//
//   queued ──▶ filling (in steps, checked against the machine's memory) ──▶ done, or failed with the reason
//     └──cancelled──▶ gone         ├──cancelled between two steps──▶ gone
//                                  └──somebody waits for another job──▶ queued again, with the pages that it has
//
// Huge pages where the kernel gives them (one byte touched per 2 MiB, then MADV_COLLAPSE), MADV_POPULATE_WRITE
// otherwise, plain reservation on kernels without either. It never takes the machine's or the control group's last
// memory: before each step what is left is read, and a reserve is kept. Urgent work (somebody waits) goes first, step
// by step with what is given back; what is given back goes before all other work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "shm/layout.h"

namespace entrepot {

struct ProvisionJob {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
  bool urgent = false;
  UniqueFd fd;  // a duplicate of its own: the segment may be dropped while it is being filled
};

struct Provisioned {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  MemoryKind kind = MemoryKind::kUnknown;
  Status status;
};

class Provisioner {
 public:
  Provisioner() = default;
  ~Provisioner() { stop(); }
  Provisioner(const Provisioner&) = delete;
  Provisioner& operator=(const Provisioner&) = delete;

  // `event_fd` is signalled when take_finished() has something; it outlives the provisioner.
  [[nodiscard]] Status start(int event_fd);
  void stop();  // waits for the step under way

  void add(ProvisionJob job);
  void cancel(std::uint32_t segment, std::uint32_t generation);
  // Gives all pages of a memfd back: of a large one that takes longer than the event loop may (0.15 s per GiB). Before
  // a step of urgent work as many of them as that step takes, before all other work all of them: so there never are
  // more pages than before.
  void give_back(std::uint32_t segment, UniqueFd fd, std::uint64_t bytes);
  [[nodiscard]] std::vector<Provisioned> take_finished();

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;

  void run();
  [[nodiscard]] std::optional<Provisioned> fill(const ProvisionJob& job);  // none: it gave way to urgent work
  [[nodiscard]] bool cancelled(const ProvisionJob& job);
  [[nodiscard]] bool urgent_waits();
  struct Unwanted {
    std::uint32_t segment = 0;
    std::uint64_t bytes = 0;
    UniqueFd fd;
    std::uint64_t punched = 0;
  };
  bool punch_some();  // of what is unwanted, as much as a step fills; false: there was nothing
  void make_room_for(const ProvisionJob& job);
  void enqueue(ProvisionJob job, bool in_front);  // mutex_ held; of those that are as urgent

  int event_fd_ = -1;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ProvisionJob> queue_;     // guarded by mutex_; urgent ones in front
  std::deque<Unwanted> unwanted_;      // guarded by mutex_; taken out by the thread only
  std::vector<Provisioned> finished_;  // guarded by mutex_
  std::set<Key> cancelled_;            // guarded by mutex_; only keys of jobs that are queued or being filled
  bool stopping_ = false;              // guarded by mutex_
};

// Makes all pages of the memfd's mapping exist, in steps; `go_on` is asked before each. Used by the thread, and
// directly by tests. kStoreFull: the machine has no more to give, with the figures.
[[nodiscard]] Result<MemoryKind> fill_warm(int fd, std::uint64_t bytes, const std::function<bool()>& go_on);

}  // namespace entrepot
