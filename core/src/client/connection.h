// Connection: one socket to the daemon, shared by all threads of the process.
//
//   open ──error, end of file, bad frame, close()──▶ broken (for good; the client creates a new Connection)
//
// Requests are numbered, and each thread waits for its own answer. There is no reader thread: a waiting thread that
// finds nobody reading reads frames for all, and passes the role on when its own answer has arrived.
//
// A connection that is used a lot asks for rings, and from then on sends and receives small frames through them; see
// net/frame_ring.h. A thread that waits then blocks at the ring for a moment, and after that sleeps on the socket, so it
// notices when the daemon exits.
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
#include "client/interrupt.h"
#include "net/frame_reader.h"
#include "net/frame_ring.h"
#include "net/protocol.h"
#include "os/clock.h"
#include "os/spin.h"
#include "os/unique_fd.h"

namespace entrepot {

class Connection {
 public:
  // Receives an answer whose caller has given up; runs in the thread that reads it.
  using Abandoned = std::function<void(Frame)>;

  explicit Connection(UniqueFd socket);

  // Sends a request and waits for its answer. An Error frame becomes its Status. If the connection breaks first, the
  // Status is kStoreUnavailable and broken() is true; at the deadline it is kTimeout; for interrupts see
  // interrupted_status.
  [[nodiscard]] Result<Frame> call(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds,
                                   os::Deadline deadline, const Interrupt& interrupt, Abandoned abandoned = {});

  // Sends requests of one type before it waits for the first answer, so that the daemon handles them in one go. Returns
  // an answer for each, as call() does for one; an error only if not all have come by the deadline or an interrupt.
  [[nodiscard]] Result<std::vector<Result<Frame>>> call_all(MessageType type,
                                                            std::span<const std::vector<std::uint8_t>> bodies,
                                                            os::Deadline deadline, const Interrupt& interrupt);

  // Sends a message without an answer. It is a hint, and is dropped if sending would block.
  void post(MessageType type, std::span<const std::uint8_t> body);

  // Remembers the daemon's process, for the error if it does not answer later, and what it supports.
  void set_daemon(std::uint32_t pid, std::uint16_t protocol_minor) {
    daemon_.store(pid, std::memory_order_relaxed);
    protocol_minor_.store(protocol_minor, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint16_t protocol_minor() const {  // the daemon's
    return protocol_minor_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_acquire); }
  // True if the daemon has closed the connection (as it does on exit), even if no request has noticed yet.
  [[nodiscard]] bool ended() const;
  // Wakes all waiting threads with `reason`.
  void close(const Status& reason);

  // In the child of a fork: closes the inherited descriptor only, because other threads may have held the locks.
  void discard_in_child() { socket_.reset(); }

 private:
  static constexpr std::uint64_t kRingsAfterRequests = 64;  // they cost a request and some memory on either side

  struct PendingCall {
    std::uint64_t request = 0;
    bool done = false;
    Status status;
    Frame frame;
  };

  // Numbers calls and has their answers delivered, until they are withdrawn. An error: it is broken.
  [[nodiscard]] Status enter(std::span<PendingCall> calls);
  // Waits until all are done, and withdraws them. An error says why some are not; a single one's answer then goes to
  // `abandoned`.
  [[nodiscard]] Status wait_for(std::span<PendingCall> calls, os::Deadline deadline, const Interrupt& interrupt,
                                Abandoned abandoned);
  void withdraw_locked(std::span<PendingCall> calls);  // requires mutex_
  void open_rings();
  [[nodiscard]] Status send(MessageType type, std::uint64_t request, std::span<const std::uint8_t> body,
                            std::span<const int> fds);
  [[nodiscard]] Status send_locked(const FrameHeader& header, std::span<const std::uint8_t> body,
                                   std::span<const int> fds);  // requires send_mutex_
  // These are called by the thread that has the reader's role.
  void read_slice(os::Deadline until);
  [[nodiscard]] bool wait_for_frames(os::Deadline until, Result<FrameReader::Read>& read);
  void deliver_arrived();
  [[nodiscard]] Status answer_timeout(std::uint64_t since_ns) const;
  void deliver(Frame frame);
  void break_locked(const Status& reason);  // requires mutex_

  UniqueFd socket_;
  std::atomic<bool> broken_ = false;
  std::atomic<std::uint32_t> daemon_ = 0;  // 0: not known yet
  std::atomic<std::uint16_t> protocol_minor_ = kProtocolMinor;
  std::atomic<std::uint64_t> next_request_ = 1;
  std::mutex send_mutex_;  // held while a frame is sent, so that frames do not interleave

  std::unique_ptr<FrameRings> rings_memory_;  // set once, by the thread that sends request kRingsAfterRequests
  // The same, once it may be used. Its producer of requests is guarded by send_mutex_, its consumer of responses
  // belongs to the thread that has the reader's role.
  std::atomic<FrameRings*> rings_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, PendingCall*> pending_;  // guarded by mutex_
  std::unordered_map<std::uint64_t, Abandoned> abandoned_;   // guarded by mutex_
  bool reading_ = false;                                     // guarded by mutex_: a thread has the reader's role
  Status reason_;                                            // guarded by mutex_: why it broke

  // Used only by the thread that has the reader's role.
  FrameReader reader_;
  std::vector<Frame> arrived_;  // empty between reads
  os::SpinGate spin_;
};

// Status of a wait that the interpreter interrupted. Its code is kTimeout; only the bindings look further.
[[nodiscard]] Status interrupted_status();

}  // namespace entrepot
