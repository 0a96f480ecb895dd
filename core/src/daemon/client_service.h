// ClientService: serves what clients send. Dispatches each frame to the registry of clients, to the store, or to what
// concerns the daemon itself.
#pragma once

#include <functional>

#include "daemon/client_registry.h"
#include "daemon/connections.h"
#include "daemon/gateway_requests.h"
#include "daemon/keeper_link.h"
#include "daemon/object_requests.h"
#include "daemon/request.h"
#include "daemon/segment_files.h"
#include "daemon/session_requests.h"
#include "daemon/stream_requests.h"
#include "daemon/upgrader.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ClientService {
 public:
  struct Parts {  // all must outlive it
    Connections& connections;
    ClientRegistry& registry;
    Upgrader& upgrader;
    Store& store;
    SegmentFiles& segments;
    KeeperLink& link;
  };
  // `stop` is called for a request to shut down, once it is answered.
  ClientService(const Parts& parts, std::function<void()> stop);
  ClientService(const ClientService&) = delete;
  ClientService& operator=(const ClientService&) = delete;

 private:
  void handle(Connection& connection, Frame& frame);
  void serve(Request& request);
  void grow_pins(Request& request);
  void upgrade(Request& request);
  [[nodiscard]] DaemonStatus daemon_status() const;

  Parts parts_;
  std::function<void()> stop_;
  ObjectRequests objects_;
  SessionRequests sessions_;
  StreamRequests streams_;
  GatewayRequests gateway_;
};

}  // namespace entrepot
