// LogWriter: queues lines for a descriptor that may be slow, full or unread, without ever blocking the caller.
//
// State of a line:
//   added ──it fits──▶ pending ──the thread takes all──▶ writing ──write(2)──▶ written
//     └─it does not──▶ dropped                              └──write error──▶ dropped
// Dropped lines are counted, and reported in a line of their own as soon as one can be written again.
//
// Guarded by State::mutex. Nobody holds it during a system call, an allocation or a wait, except on the conditions.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace entrepot::os {

class LogWriter {
 public:
  // Formats the line that reports `dropped` lines; `error` is the errno of the last failed write, or 0.
  using DropReport = std::function<std::string(std::uint64_t dropped, int error)>;

  // Writes to `fd`, which must stay open as long as the process. The thread starts with the first line. A forked child
  // has no such thread, so fork only to exec.
  LogWriter(int fd, std::size_t capacity_bytes, DropReport drop_report);
  ~LogWriter();  // detaches from a thread that is stuck in a write
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void add(std::string_view line);  // including the newline; any thread
  // Waits until all lines are written or dropped, at most `at_most`, and at most `unread_at_most` for any single write,
  // counting the time that it has already waited. False: some lines are neither.
  bool flush(std::chrono::milliseconds at_most, std::chrono::milliseconds unread_at_most);
  // Starts the thread already now, to learn whether that is possible. Without one, lines wait for flush(), or for the
  // next add(), which tries again.
  [[nodiscard]] Status start();
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct State {
    State(int descriptor, std::size_t capacity_bytes, DropReport make_report);

    const int fd;
    const std::size_t capacity;
    const DropReport drop_report;
    // When the thread began its last write. Atomic; read by any thread.
    std::atomic<std::chrono::steady_clock::time_point> progress{std::chrono::steady_clock::time_point{}};

    std::mutex mutex;  // guards all members below
    std::condition_variable changed;
    std::condition_variable idle;
    std::string pending;   // whole lines, at most `capacity` bytes (reserved)
    bool writing = false;  // the thread holds lines that are not written yet
    bool has_thread = false;
    bool stopping = false;
    std::uint64_t dropped = 0;
    std::uint64_t reported = 0;  // the part of `dropped` already reported
  };

  static void run(const std::shared_ptr<State>& state);
  void write_here(std::chrono::milliseconds unread_at_most);

  const std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace entrepot::os
