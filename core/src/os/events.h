// Event multiplexing: epoll, and the eventfd, timerfd and signalfd that wake it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace entrepot::os {

// Readiness of a descriptor. Level-triggered.
struct Ready {
  std::uint64_t key = 0;  // as given to Poller::add
  bool readable = false;
  bool writable = false;
  bool hangup = false;  // the peer has closed, or an error is pending
  bool urgent = false;  // what add_urgent() waits for has happened
};

class Poller {
 public:
  [[nodiscard]] static Result<Poller> create();
  [[nodiscard]] Status add(int fd, std::uint64_t key, bool readable, bool writable);
  // For descriptors whose events are exceptional conditions (POLLPRI), such as those of the kernel's pressure triggers.
  [[nodiscard]] Status add_urgent(int fd, std::uint64_t key);
  [[nodiscard]] Status change(int fd, std::uint64_t key, bool readable, bool writable);
  void remove(int fd);  // call before closing the descriptor
  // Waits until something is ready or the deadline passes (then empty). Resumes interrupted waits.
  [[nodiscard]] Result<std::vector<Ready>> wait(Deadline deadline);
  [[nodiscard]] int fd() const { return fd_.get(); }  // readable when something is ready; for nesting pollers

 private:
  explicit Poller(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Waits for one descriptor: true when readable (or hung up), false at the deadline.
[[nodiscard]] Result<bool> wait_readable(int fd, Deadline deadline);
[[nodiscard]] Result<bool> wait_writable(int fd, Deadline deadline);

// True if the peer of a socket has closed it or exited. Does not wait.
[[nodiscard]] bool is_hung_up(int fd);

// Forgets an exceptional condition (POLLPRI) that the descriptor reports once.
void clear_urgent(int fd);

// Eventfd that wakes a poller from another thread.
[[nodiscard]] Result<UniqueFd> create_event_fd();
void signal_event(int event_fd);  // any thread
void clear_event(int event_fd);

// Blocks the signals in the calling thread (and threads it creates later) and delivers them to the descriptor.
[[nodiscard]] Result<UniqueFd> create_signal_fd(std::initializer_list<int> signals);
[[nodiscard]] Result<int> read_signal(int signal_fd);  // 0: none pending
[[nodiscard]] Status ignore_sigpipe();
// Makes a write beyond RLIMIT_FSIZE fail with EFBIG, which counts as a full disk, instead of killing the process.
[[nodiscard]] Status ignore_sigxfsz();

}  // namespace entrepot::os
