// Logger of daemon and keeper: one line per event on standard error, written in one piece so that lines of several
// processes do not interleave: `2026-01-31T12:00:00.123Z INFO daemon[4711] text`. Newlines in the text are escaped as
// "\n".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text.h"

namespace entrepot {

enum class LogLevel : std::uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

void set_log_level(LogLevel level);  // default kInfo; callable from any thread
[[nodiscard]] LogLevel log_level();
void set_log_role(std::string_view role);  // default "entrepot"; call before other threads start

// Moves writing to a background thread, so that a slow reader (a full pipe, a stopped terminal, a hung disk) blocks
// nobody: lines beyond a backlog of 128 KiB are dropped, counted and reported. Call at startup, before the first line
// is logged. Without it, each line is written at once by the thread that logs it.
void log_in_background();
// Starts that thread, which otherwise starts with the first line. Without it, lines are written by flush_log() only.
[[nodiscard]] Status start_log_thread();
inline constexpr std::uint64_t kFlushLimitMs = 1000;
inline constexpr std::uint64_t kStalledWriteMs = 100;
// Waits until all lines are written; call before the process exits or execs. Waits at most kFlushLimitMs, and at most
// kStalledWriteMs while nobody reads any of them (during an upgrade, clients are waiting too). False: some lines are
// lost.
bool flush_log();
[[nodiscard]] std::uint64_t log_lines_dropped();  // by this process

void log_line(LogLevel level, std::string_view text);

template <class... Ts>
void log(LogLevel level, const Ts&... parts) {
  if (level >= log_level()) log_line(level, concat(parts...));
}
template <class... Ts>
void log_debug(const Ts&... parts) {
  log(LogLevel::kDebug, parts...);
}
template <class... Ts>
void log_info(const Ts&... parts) {
  log(LogLevel::kInfo, parts...);
}
template <class... Ts>
void log_warning(const Ts&... parts) {
  log(LogLevel::kWarning, parts...);
}
template <class... Ts>
void log_error(const Ts&... parts) {
  log(LogLevel::kError, parts...);
}

}  // namespace entrepot
