// Lines on their way to a descriptor that may be slow, full or read by nobody: whoever adds one never waits for it.
//
// A line:  added ──there is room──▶ pending ──the thread takes all──▶ in hand ──write(2)──▶ written
//            └──there is none──▶ dropped                                └──an error──▶ dropped
// What was dropped is counted, and told in a line of its own as soon as one can be written again.
//
// Guarded by State::mutex, with which nobody makes a system call, allocates or waits for anything but the conditions.
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

namespace entrepot::os {

class LogWriter {
 public:
  // The line that tells of `dropped` lines; `error` is the errno of the last write that failed, or 0.
  using Note = std::function<std::string(std::uint64_t dropped, int error)>;

  // Writes to `fd`, which stays open as long as the process. The thread begins with the first line, and a process that
  // was forked has none: only whoever execs may fork.
  LogWriter(int fd, std::size_t capacity_bytes, Note note);
  ~LogWriter();  // leaves a thread that is stuck in a write to itself
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void add(std::string_view line);  // with its line end; any thread
  // Waits until all lines are written or dropped, at most so long, and no longer than `unread_at_most` for one write,
  // which may have waited for its reader before; false: some are not.
  bool flush(std::chrono::milliseconds at_most, std::chrono::milliseconds unread_at_most);
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct State {
    State(int descriptor, std::size_t capacity_bytes, Note teller);

    const int fd;
    const std::size_t capacity;
    const Note note;
    // When the thread began its last write; from any thread.
    std::atomic<std::chrono::steady_clock::time_point> progress{std::chrono::steady_clock::time_point{}};

    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::condition_variable idle;
    std::string pending;   // whole lines, at most `capacity` bytes, which are reserved
    bool in_hand = false;  // the thread has lines that are not written yet
    bool has_thread = false;
    bool ending = false;
    std::uint64_t dropped = 0;
    std::uint64_t told = 0;  // of `dropped`, in lines that were written
  };

  static void run(const std::shared_ptr<State>& state);
  static void start_thread(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // the thread's too
};

}  // namespace entrepot::os
