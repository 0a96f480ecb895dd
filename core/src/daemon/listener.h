// Listener: accepts connections, and keeps the store's address alive.
//
//   idle ──start()──▶ listening ──no descriptors are left──▶ paused ──a tenth of a second──▶ listening
//                       ▲ └──stop()──▶ stopped ◀──stop()──────┘
//                       └──restart()──┘
//
// While it is paused or stopped, connections wait in the socket's queue. The keeper holds the socket too, so what this
// daemon does not accept, the next one does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "daemon/address.h"
#include "daemon/keeper_link.h"
#include "net/event_loop.h"
#include "os/socket.h"
#include "os/unique_fd.h"

namespace entrepot {

// Guarded by the daemon's thread.
class Listener {
 public:
  using Accepted = std::function<void(UniqueFd, const os::PeerCredentials&)>;

  // The link holds the socket. Loop and link must outlive it.
  Listener(EventLoop& loop, KeeperLink& link, std::string socket_path, Accepted accepted,
           AddressWatch::Look look = &AddressWatch::look);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] Status start();
  void stop();
  void restart();  // after stop()

 private:
  [[nodiscard]] Status watch();
  [[nodiscard]] Status watch_address();
  void accept_all();
  void pause(const Status& why);
  void resume();
  void take_address();
  void replace_socket(UniqueFd replacement);
  [[nodiscard]] int socket() const { return link_.fd({DescriptorKind::kListenSocket, 0}); }
  void check_address();

  EventLoop& loop_;
  KeeperLink& link_;
  AddressWatch address_;
  Accepted accepted_;
  EventLoop::Watch watch_;             // of the socket; active while listening
  EventLoop::Watch address_watch_;     // of the event of `address_`
  std::uint64_t silent_until_ns_ = 0;  // pauses are not logged before that
  EventLoop::Timer resume_timer_;      // armed while paused
  EventLoop::Timer address_timer_;     // armed until stop()
};

}  // namespace entrepot
