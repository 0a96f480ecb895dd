// Server: the daemon around a started store: its event loop's turns, what takes part in them, and its end.
//
//   running ──the keeper has another program──▶ answering ──end of the turn──▶ handing over ──▶ killed by the keeper
//    │ ▲                                                                         │
//    │ └──the keeper died instead──────────────────────────────────────────────────┘
//    └──Shutdown, a signal, or idle for long──▶ stopping ──▶ ended: objects are discarded, and the keeper ends too
//
// While it hands over, it serves its clients, but accepts no others.
//
// Each turn: events, frames that were left in buffers, the store's pending work, timers. One of these stands for all
// that the store does at certain times; it is set anew whenever that may have changed.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "daemon/client_registry.h"
#include "daemon/client_service.h"
#include "daemon/config.h"
#include "daemon/connections.h"
#include "daemon/keeper_link.h"
#include "daemon/listener.h"
#include "daemon/provisioner.h"
#include "daemon/segment_files.h"
#include "daemon/upgrader.h"
#include "net/event_loop.h"
#include "os/unique_fd.h"
#include "shm/control.h"
#include "spill/backend.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Server {
 public:
  struct Parts {  // all must outlive it; the store is started or adopted
    const DaemonConfig& config;
    EventLoop& loop;
    KeeperLink& link;
    ControlMemory& memory;
    Store& store;
    SegmentFiles& segments;
    Provisioner& provisioner;
    SpillBackend* spill = nullptr;  // null: the store does not spill
    int provisioner_event = -1;
    int spill_event = -1;
  };
  Server(const Parts& parts, UniqueFd signals);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] Status start();
  // Runs until a clean shutdown. On error the keeper starts another daemon, which adopts everything.
  [[nodiscard]] Status run();

 private:
  enum class State : std::uint8_t { kRunning, kAnswering, kHandingOver, kStopping };

  void stop(State next);
  void hand_over();
  void take_back();
  void take_signals();
  [[nodiscard]] bool is_idle() const { return parts_.store.is_idle() && connections_.is_empty(); }
  void watch_idleness();
  void stop_if_idle();

  Parts parts_;
  UniqueFd signals_;
  State state_ = State::kRunning;
  Connections connections_;
  ClientRegistry registry_;
  Upgrader upgrader_;
  Listener listener_;
  ClientService service_;
  EventLoop::Watch signals_watch_;
  EventLoop::Watch spill_watch_;
  EventLoop::Timer store_timer_;
  EventLoop::Timer idle_timer_;  // armed while idle, if that ends the store
};

}  // namespace entrepot
