// The daemon's and keeper's logger: one line an event on standard error, written whole so that lines of several
// processes do not mix: `2026-01-31T12:00:00.123Z INFO daemon[4711] text`. Line ends in the text become "\n".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace entrepot {

enum class LogLevel : std::uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

void set_log_level(LogLevel level);  // default kInfo; any thread
[[nodiscard]] LogLevel log_level();
void set_log_role(std::string_view role);  // "daemon", "keeper"; at start, before other threads; default "entrepot"

// From now on lines are written by a thread of their own, so that nobody waits for whoever reads them (a pipe that is
// full, a stopped terminal, a disk that does not answer): what does not fit into 128 KiB meanwhile is dropped, counted
// and told. At start, before the first line. Without it each line is written at once by whoever has it.
void log_in_background();
inline constexpr std::uint64_t kLastLinesMs = 1000;
inline constexpr std::uint64_t kUnreadMs = 100;
// Before a process ends or becomes another program: waits for the last lines, at most kLastLinesMs, and at most
// kUnreadMs while nobody reads any of them: at an upgrade clients wait too. False: some are lost.
bool flush_log();
[[nodiscard]] std::uint64_t log_lines_dropped();  // of this process

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
