// Connection: one socket to the daemon, shared by all threads of the process.
//
//   open ──error, end of file, bad frame, close()──▶ broken (for good; the client makes a new Connection)
//
// Requests are numbered; each waits for its own answer. There is no reader thread: whichever waiting thread finds
// nobody reading reads frames for all, and hands the role on when its own answer is there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "client/interrupt.h"
#include "net/frame_reader.h"
#include "net/protocol.h"
#include "os/clock.h"
#include "os/spin.h"

namespace entrepot {

class Connection {
 public:
  // Called with an answer whose caller has given up; runs in whichever thread reads it.
  using Abandoned = std::function<void(Frame)>;

  explicit Connection(UniqueFd socket);

  // Sends a request and waits for its answer. An Error frame becomes its Status. Where the connection breaks first, the
  // Status is kStoreUnavailable and broken() is true; at the deadline it is kTimeout; interrupted, see was_interrupted.
  [[nodiscard]] Result<Frame> call(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds,
                                   os::Deadline deadline, const Interrupt& interrupt, Abandoned abandoned = {});

  // Sends a message that has no answer, unless that would have to wait: it is a hint.
  void post(MessageType type, std::span<const std::uint8_t> body);

  // Who answers, for whoever has to say later that nobody did.
  void set_daemon(std::uint32_t pid) { daemon_.store(pid, std::memory_order_relaxed); }

  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Whether the daemon has closed it, as its end does, though nothing that was asked has met with that yet.
  [[nodiscard]] bool ended() const;
  // Wakes all who wait, with `reason`.
  void close(const Status& reason);

  // In the child of a fork: closes the inherited descriptor and touches nothing else, as other threads' locks are lost.
  void discard_in_child() { socket_.reset(); }

 private:
  struct Waiter {
    bool done = false;
    Status status;
    Frame frame;
  };

  [[nodiscard]] Status send(MessageType type, std::uint64_t request, std::span<const std::uint8_t> body,
                            std::span<const int> fds);
  void read_slice(os::Deadline until);  // by the thread that has the reader's role
  [[nodiscard]] Status no_answer(std::uint64_t since_ns) const;
  void deliver(Frame frame);
  void break_locked(const Status& reason);  // mutex_ held

  UniqueFd socket_;
  std::atomic<bool> broken_ = false;
  std::atomic<std::uint32_t> daemon_ = 0;
  std::atomic<std::uint64_t> next_request_ = 1;
  std::mutex send_mutex_;  // held while a frame is sent, so that frames do not mix

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Waiter*> waiting_;      // guarded by mutex_
  std::unordered_map<std::uint64_t, Abandoned> abandoned_;  // guarded by mutex_
  bool reading_ = false;                                    // guarded by mutex_: somebody has the reader's role
  Status reason_;                                           // guarded by mutex_: why it broke

  // Owned by the reader's role.
  FrameReader reader_;
  std::vector<Frame> arrived_;  // empty between reads
  os::SpinGate spin_;
};

// The Status of a wait that the host language interrupted. Its code is kTimeout; nobody but the bindings looks further.
[[nodiscard]] Status interrupted_status();

}  // namespace entrepot
