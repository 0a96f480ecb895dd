// What the parts of the server share: the store, what surrounds it, and the connections.
//
// A connection:  accepted ──Hello──▶ ready ──end-of-file, bad frame, client reconnected elsewhere──▶ closed
//                   └──anything but a good Hello, or nothing for ten seconds──▶ closed, after an Error
// Guarded by the daemon's thread, all of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/keeper_link.h"
#include "daemon/segment_files.h"
#include "net/frame_socket.h"
#include "os/events.h"
#include "os/socket.h"
#include "store/store.h"

namespace entrepot {

struct Connection {
  Connection(std::uint64_t number, UniqueFd socket) : owner(number), frames(std::move(socket)) {}

  std::uint64_t owner;  // never used again; requests that wait belong to it
  FrameSocket frames;
  os::PeerCredentials peer;
  std::uint64_t accepted_ns = 0;
  std::optional<std::uint32_t> client;  // after Hello
  bool closing = false;                 // to be closed when its turn is over
  bool watches_write = false;
  bool has_more = false;  // whole frames wait in its buffer
};

enum class WatchKind : std::uint64_t { kListen = 1, kSignals, kKeeper, kProvisioner, kConnection, kLiveness };

[[nodiscard]] constexpr std::uint64_t watch_key(WatchKind kind, std::uint64_t number = 0) {
  return (static_cast<std::uint64_t>(kind) << 56) | number;
}

class ServerState {
 public:
  ServerState(const DaemonConfig& config, KeeperLink& link, ControlMemory& memory, Store& store, SegmentFiles& segments,
              os::Poller poller)
      : config(config), link(link), memory(memory), store(store), segments(segments), poller(std::move(poller)) {}

  const DaemonConfig& config;
  KeeperLink& link;
  ControlMemory& memory;
  Store& store;
  SegmentFiles& segments;
  os::Poller poller;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections;  // by owner
  bool stopping = false;

  // Connections, in connections.cpp.
  Connection* add_connection(UniqueFd socket, const os::PeerCredentials& peer);  // null: it could not be watched
  void close_connection(std::uint64_t owner);
  [[nodiscard]] Connection* find(std::uint64_t owner);
  void update_watch(Connection& connection);
  template <class Reply>
  void reply(std::uint64_t owner, std::uint64_t request, const Reply& body, std::vector<UniqueFd> fds = {}) {
    send(owner, MessageType::kReply, request, to_wire(body), std::move(fds));
  }
  void refuse(std::uint64_t owner, std::uint64_t request, const Status& status);
  void send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
            std::vector<UniqueFd> fds);

  // Clients, in registration.cpp.
  void hello(Connection& connection, IncomingFrame& frame);
  void fork(Connection& connection, std::uint64_t request);
  void watch_adopted_clients();
  void client_died(std::uint32_t client);

  // Requests of ready connections, in requests.cpp.
  void handle(Connection& connection, IncomingFrame& frame);

 private:
  struct Registration {
    std::uint32_t client = 0;
    std::uint64_t token = 0;
    UniqueFd pin_table;
    UniqueFd liveness;  // the client's end
  };
  [[nodiscard]] Status check_versions(const Connection& connection, const Hello& hello) const;
  [[nodiscard]] Result<Registration> register_client(const ClientIdentity& identity);
  [[nodiscard]] Status keep_client(std::uint32_t client, const ClientIdentity& identity, Registration& registration);
  [[nodiscard]] Status reconnect(Connection& connection, const Hello& hello, const std::vector<UniqueFd>& fds);
  [[nodiscard]] Status watch_liveness(std::uint32_t client);

  std::uint64_t next_owner_ = 1;
};

}  // namespace entrepot
