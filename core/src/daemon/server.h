// Event loop of the daemon: connections, signals, and results of worker threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "daemon/address.h"
#include "daemon/connections.h"
#include "daemon/provisioner.h"
#include "os/events.h"
#include "os/spin.h"
#include "os/unique_fd.h"

namespace entrepot {

// Constructed once the store is started or adopted.
class ServerLoop {
 public:
  // `spill` may be null; `spill_event` belongs to it.
  ServerLoop(ServerState& state, Provisioner& provisioner, SpillBackend* spill, UniqueFd signals, int provisioner_event,
             int spill_event)
      : state_(state),
        address_(state.config.socket_path),
        provisioner_(provisioner),
        spill_(spill),
        signals_(std::move(signals)),
        provisioner_event_(provisioner_event),
        spill_event_(spill_event) {}

  [[nodiscard]] Status watch();
  [[nodiscard]] int run();

 private:
  [[nodiscard]] Result<std::vector<os::Ready>> wait(std::uint64_t sleep_ms);
  void take_event(const os::Ready& ready);
  void accept_all();
  void listen_on(UniqueFd socket);
  void pause_accepting(const Status& why);
  void resume_accepting();
  void read_from(Connection& connection);
  void read_more();
  void take_signals();
  void run_maintenance();
  [[nodiscard]] std::uint64_t next_wake_ns() const;
  [[nodiscard]] bool idle_for_long();

  ServerState& state_;
  AddressWatch address_;
  Provisioner& provisioner_;
  SpillBackend* spill_;
  UniqueFd signals_;
  int provisioner_event_;
  int spill_event_;
  std::uint64_t idle_since_ns_ = 0;    // 0: not idle
  std::uint64_t accept_again_ns_ = 0;  // 0: the listening socket is being polled
  std::uint64_t accept_silent_until_ns_ = 0;
  bool has_buffered_frames_ = false;
  bool handled_request_ = false;        // a request was handled since the last wait
  os::SpinGate after_request_{50'000};  // nanoseconds
};

}  // namespace entrepot
