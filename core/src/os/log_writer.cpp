#include "os/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "os/fork.h"
#include "os/thread.h"

namespace entrepot::os {

namespace {

// Lines for one write(2): as many whole lines as a pipe takes atomically, without mixing them with other processes'
// lines.
std::string_view next_piece(std::string_view lines) {
  if (lines.size() <= PIPE_BUF) return lines;
  std::size_t end = lines.rfind('\n', PIPE_BUF - 1);
  if (end == std::string_view::npos) end = lines.find('\n');
  return end == std::string_view::npos ? lines : lines.substr(0, end + 1);
}

std::uint64_t count_lines(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

// Writes as long as it takes. On failure returns the rest of `text`, with errno in `error`.
std::string_view write_all(int fd, std::string_view text, int& error) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    const int failure = written == 0 ? EIO : errno;
    if (failure == EINTR) continue;
    if (failure == EAGAIN) {  // another process has made the shared descriptor non-blocking
      pollfd entry{fd, POLLOUT, 0};
      if (::poll(&entry, 1, -1) >= 0 || errno == EINTR) continue;
    }
    error = failure;
    return text;
  }
  return text;
}

// Writes lines to one descriptor and remembers errors.
class Output {
 public:
  Output(int fd, std::atomic<std::chrono::steady_clock::time_point>& progress) : fd_(fd), progress_(progress) {}

  // Returns the number of lines lost.
  std::uint64_t write(std::string_view lines) {
    std::uint64_t lost = 0;
    while (!lines.empty()) {
      const std::string_view piece = next_piece(lines);
      lines.remove_prefix(piece.size());
      progress_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
      // End a partial line, left by a full disk, before the next line.
      if (torn_ && !write_all(fd_, "\n", error_).empty()) {
        lost += count_lines(piece);
        continue;
      }
      torn_ = false;
      const std::string_view left = write_all(fd_, piece, error_);
      if (left.empty()) continue;
      lost += count_lines(left);
      torn_ = left.size() < piece.size() && *(left.data() - 1) != '\n';
    }
    return lost;
  }

  // Returns errno of the last failure and clears it; 0: no failure.
  int take_error() { return std::exchange(error_, 0); }

 private:
  const int fd_;
  std::atomic<std::chrono::steady_clock::time_point>& progress_;
  int error_ = 0;
  bool torn_ = false;
};

}  // namespace

LogWriter::State::State(int descriptor, std::size_t capacity_bytes, DropReport make_report)
    : fd(descriptor), capacity(capacity_bytes), drop_report(std::move(make_report)) {
  pending.reserve(capacity);
}

LogWriter::LogWriter(int fd, std::size_t capacity_bytes, DropReport drop_report)
    : state_(std::make_shared<State>(fd, capacity_bytes, std::move(drop_report))) {}

LogWriter::~LogWriter() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void LogWriter::add(std::string_view line) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (line.size() > state_->capacity - state_->pending.size()) {
      ++state_->dropped;
      return;
    }
    state_->pending.append(line);
  }
  // If no thread can be started now, the lines stay queued; the next add() tries again, and flush() writes them.
  static_cast<void>(start());
  state_->changed.notify_one();
}

// Blocks all signals in the writer thread, which are for the threads that wait for them. A write to a broken pipe or
// beyond the file size limit then fails like any other.
Status LogWriter::start() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (std::exchange(state_->has_thread, true)) return Status::ok();
  }
  const BlockedSignals blocked;
  auto thread = start_thread("the thread that writes the log", [state = state_] { run(state); });
  if (thread.is_ok()) {
    thread->detach();
    return Status::ok();
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->has_thread = false;
  return thread.status();
}

void LogWriter::run(const std::shared_ptr<State>& state) {
  Output output(state->fd, state->progress);
  std::string batch;
  batch.reserve(state->capacity);
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stopping || !state->pending.empty(); });
    if (state->pending.empty()) return;
    std::swap(batch, state->pending);
    state->writing = true;
    state->progress.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
    lock.unlock();
    const std::uint64_t lost = output.write(batch);
    batch.clear();
    lock.lock();
    state->dropped += lost;
    const std::uint64_t missing = state->dropped - state->reported;
    if (missing > 0) {
      lock.unlock();
      const bool reported = output.write(state->drop_report(missing, output.take_error())) == 0;
      lock.lock();
      if (reported) state->reported += missing;
    }
    state->writing = false;
    if (state->pending.empty()) state->idle.notify_all();
  }
}

// Without a thread, the caller writes: it has to wait in any case. Whole lines that fit into a pipe at once, so that no
// write blocks once there is room.
void LogWriter::write_here(std::chrono::milliseconds unread_at_most) {
  std::string lines;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->has_thread) return;
    std::swap(lines, state_->pending);
  }
  Output output(state_->fd, state_->progress);
  std::string_view rest = lines;
  std::uint64_t lost = 0;
  while (!rest.empty()) {
    pollfd entry{state_->fd, POLLOUT, 0};
    if (::poll(&entry, 1, static_cast<int>(unread_at_most.count())) <= 0) break;
    const std::string_view piece = next_piece(rest);
    rest.remove_prefix(piece.size());
    lost += output.write(piece);
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->dropped += lost + count_lines(rest);
}

bool LogWriter::flush(std::chrono::milliseconds at_most, std::chrono::milliseconds unread_at_most) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->pending.empty() && !state_->writing) return true;
  }
  if (!start().is_ok()) {
    const std::uint64_t dropped_before = dropped();
    write_here(unread_at_most);
    return dropped() == dropped_before;
  }
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (!state_->pending.empty() || state_->writing) {
    const auto now = std::chrono::steady_clock::now();
    const auto since = state_->writing ? state_->progress.load(std::memory_order_relaxed) : now;
    const auto until = std::min(end, since + unread_at_most);
    if (now >= until) return false;
    state_->idle.wait_until(lock, until);
  }
  return true;
}

std::uint64_t LogWriter::dropped() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->dropped;
}

}  // namespace entrepot::os
