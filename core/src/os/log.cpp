#include "os/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "os/clock.h"
#include "os/log_writer.h"

namespace entrepot {

namespace {

constexpr std::size_t kPendingBytes = 128U << 10;  // limit of lines waiting for the writer
constexpr std::size_t kLineBytes = 8U << 10;       // limit of one line's text; longer text is truncated

std::atomic<LogLevel> g_level{LogLevel::kInfo};
// Set once at startup; never destroyed, because lines may still be logged late. Null: each line is written by its
// caller.
std::atomic<os::LogWriter*> g_writer{nullptr};

// Set once at startup, before other threads; never destroyed, because lines may still be logged late.
std::string& role() {
  static auto* const text = new std::string("entrepot");
  return *text;
}

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kOff:
      break;
  }
  return "OFF";
}

std::string timestamp() {
  const std::uint64_t now = os::unix_ns();
  const auto seconds = static_cast<std::time_t>(now / 1'000'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + size, text.size() - size, ".%03uZ", static_cast<unsigned>(now / 1'000'000 % 1000));
  return text.data();
}

std::string formatted(LogLevel level, std::string_view text) {
  std::string line = concat(timestamp(), " ", level_name(level), " ", role(), "[", ::getpid(), "] ");
  const bool cut = text.size() > kLineBytes;
  for (const char c : text.substr(0, kLineBytes)) {
    if (c == '\n') {
      line.append("\\n");
    } else if (c != '\r') {
      line.push_back(c);
    }
  }
  line.append(cut ? " (cut)\n" : "\n");
  return line;
}

std::string dropped_line(std::uint64_t dropped, int error) {
  return formatted(LogLevel::kWarning,
                   error == 0 ? concat(dropped, " lines of this log were dropped: its reader did not keep up")
                              : concat(dropped, " lines of this log were dropped: writing them failed (",
                                       std::generic_category().message(error), ")"));
}

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }
void set_log_role(std::string_view name) { role() = name; }

void log_in_background() {
  if (g_writer.load(std::memory_order_acquire) != nullptr) return;
  g_writer.store(new os::LogWriter(STDERR_FILENO, kPendingBytes, dropped_line), std::memory_order_release);
}

Status start_log_thread() {
  os::LogWriter* const writer = g_writer.load(std::memory_order_acquire);
  return writer == nullptr ? Status::ok() : writer->start();
}

bool flush_log() {
  os::LogWriter* const writer = g_writer.load(std::memory_order_acquire);
  return writer == nullptr ||
         writer->flush(std::chrono::milliseconds(kFlushLimitMs), std::chrono::milliseconds(kStalledWriteMs));
}

std::uint64_t log_lines_dropped() {
  const os::LogWriter* const writer = g_writer.load(std::memory_order_acquire);
  return writer == nullptr ? 0 : writer->dropped();
}

void log_line(LogLevel level, std::string_view text) {
  const int saved = errno;
  const std::string line = formatted(level, text);
  if (os::LogWriter* const writer = g_writer.load(std::memory_order_acquire); writer != nullptr) {
    writer->add(line);
  } else {
    // Nowhere to report a log that cannot be written.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  errno = saved;
}

}  // namespace entrepot
