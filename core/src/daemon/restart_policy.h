// When a keeper restarts a daemon that died: after which pause, and when it gives up.
//
//   started ──reported ready──▶ ready ──lived for a second──▶ working
//
// A death in `started` or `ready` is early. In `started`, that holds however long it took: a daemon may wait for its
// log, a disk or a lock before it fails, and would otherwise be restarted for ever.
#pragma once

#include <cstdint>
#include <vector>

namespace entrepot {

class RestartPolicy {
 public:
  static constexpr std::uint64_t kEarlyDeathNs = 1'000'000'000;
  static constexpr std::uint32_t kMaxDeaths =
      10;  // early ones, within kDeathWindowNs or without one ready between them
  static constexpr std::uint64_t kDeathWindowNs = 30'000'000'000ULL;
  static constexpr std::uint64_t kMinPauseMs = 10;
  static constexpr std::uint64_t kMaxPauseMs = 2'000;

  // All times are monotonic. An attempt to start one that failed counts as a start and a death.
  void started(std::uint64_t now_ns);
  void ready() { is_ready_ = true; }
  [[nodiscard]] bool would_be_early(std::uint64_t now_ns) const;
  // Records a death; false: give up.
  [[nodiscard]] bool may_restart(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_pause_ms();  // before the next start

 private:
  std::uint64_t started_ns_ = 0;
  bool is_ready_ = false;              // the latest daemon
  std::vector<std::uint64_t> deaths_;  // times of recent early deaths
  std::uint32_t never_ready_ = 0;      // daemons in a row that died before they were ready
  std::uint64_t pause_ms_ = kMinPauseMs;
};

}  // namespace entrepot
