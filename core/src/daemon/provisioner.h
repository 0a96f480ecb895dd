// Provisioner: a thread that makes memory warm ahead of demand, so that clients' copies incur no page faults.
//
//   queued ──▶ filling (in steps, checked against the machine's memory) ──▶ done, or failed with the reason
//     └──cancelled──▶ gone    ├──cancelled between two steps──▶ gone
//                             └──somebody waits for another job──▶ queued again, keeping the pages it has
//
// Uses huge pages where the kernel provides them (one byte touched per 2 MiB, then MADV_COLLAPSE), MADV_POPULATE_WRITE
// otherwise, and plain reservation on kernels without either. Somebody who waits gets small pages, too, if huge ones take
// long (page_choice.h); they become huge ones later (page_collapser.h). It never takes the last memory of the machine or the
// control group: before each step it reads what is left, and keeps a reserve. Urgent work (a request is waiting) goes
// first, alternating step by step with pages being given back; giving pages back precedes all other work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "daemon/page_choice.h"
#include "daemon/page_collapser.h"
#include "os/unique_fd.h"
#include "shm/layout.h"

namespace entrepot {

struct ProvisionJob {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
  bool urgent = false;
  UniqueFd fd;  // a duplicate: the segment may be dropped while it is being filled
};

struct Provisioned {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  MemoryKind kind = MemoryKind::kUnknown;  // reported again, without an error, when small pages have become huge ones
  Status status;
};

class Provisioner {
 public:
  // With other limits, for tests: see PageChoice and PageCollapser.
  explicit Provisioner(std::uint64_t slow_huge_page_ns = PageChoice::kSlowNs, std::uint64_t quiet_ms = 1000);
  ~Provisioner() { stop(); }
  Provisioner(const Provisioner&) = delete;
  Provisioner& operator=(const Provisioner&) = delete;

  // `event_fd` is signalled when take_finished() has results; it must outlive the provisioner. If it fails because no
  // thread can be started, each job tries again, and fails with that reason.
  [[nodiscard]] Status start(int event_fd);
  void stop();  // waits for the current step

  void add(ProvisionJob job);
  void cancel(std::uint32_t segment, std::uint32_t generation);
  // Returns all pages of a memfd to the machine; for a large one that takes longer than the event loop may block (0.15
  // s per GiB). Before each step of urgent work, as many pages are returned as the step takes, before all other work
  // all of them: so memory use never exceeds what it was.
  void return_pages(std::uint32_t segment, UniqueFd fd, std::uint64_t bytes);
  [[nodiscard]] std::vector<Provisioned> take_finished();

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;

  [[nodiscard]] Status ensure_running();
  void run();
  [[nodiscard]] std::optional<Provisioned> fill(ProvisionJob& job);  // none: interrupted by urgent work
  void finish(Provisioned result);
  [[nodiscard]] bool cancelled(const ProvisionJob& job);
  [[nodiscard]] bool has_urgent_job();
  struct PendingPunch {
    std::uint32_t segment = 0;
    std::uint64_t bytes = 0;
    UniqueFd fd;
    std::uint64_t punched = 0;
  };
  bool punch_next_step();  // as much of the unwanted memory as a step fills; false: there was none
  void make_room_for(const ProvisionJob& job);
  void enqueue(ProvisionJob job, bool in_front);  // mutex_ held; position among jobs of the same urgency

  const std::uint64_t slow_huge_page_ns_;
  int event_fd_ = -1;
  std::thread thread_;  // guarded by the thread that calls start(), stop(), add() and return_pages()
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ProvisionJob> queue_;     // guarded by mutex_; urgent ones first
  std::deque<PendingPunch> to_punch_;  // guarded by mutex_; removed by the thread only
  std::vector<Provisioned> finished_;  // guarded by mutex_
  std::set<Key> cancelled_;            // guarded by mutex_; only keys of jobs that are queued or being filled
  bool stopping_ = false;              // guarded by mutex_
  PageCollapser collapser_;            // jobs come from thread_
};

// Whether the machine or the control group is so short of memory that the store gives back what it only keeps: less is
// left than twice the reserve, or processes wait for memory. Reads a few small files; false if they cannot be read.
// `root` is a prefix of /proc and /sys/fs/cgroup, for tests.
[[nodiscard]] bool machine_is_short(const std::string& root = "");

struct Filled {
  MemoryKind kind = MemoryKind::kUnknown;
  bool could_be_huge = false;  // with more time
};

// Populates all pages of the memfd's mapping, in steps; calls `should_continue` before each. Used by the thread, and
// directly by tests. kStoreFull, with figures: the machine has no more to give. If somebody waits (`is_urgent`) for
// much memory, a second thread helps: where a host has to provide the memory first, that nearly halves the time.
[[nodiscard]] Result<Filled> fill_warm(int fd, std::uint64_t bytes, const std::function<bool()>& should_continue,
                                       bool is_urgent = false, std::uint64_t slow_huge_page_ns = PageChoice::kSlowNs);

}  // namespace entrepot
