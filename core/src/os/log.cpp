#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "os/clock.h"

namespace entrepot {

namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

// Set once at start, before other threads; never destroyed, so that late lines find it.
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

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }
void set_log_role(std::string_view name) { role() = name; }

void log_line(LogLevel level, std::string_view text) {
  std::string line = concat(timestamp(), " ", level_name(level), " ", role(), "[", ::getpid(), "] ");
  for (const char c : text) {
    if (c == '\n') {
      line.append("\\n");
    } else if (c != '\r') {
      line.push_back(c);
    }
  }
  line.push_back('\n');
  const int saved = errno;
  // One call so that lines of several processes do not mix. A log that cannot be written has nowhere to complain.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  errno = saved;
}

}  // namespace entrepot
