// State shared by the parts of the server: the store, its surroundings, and the connections.
//
//   connection: accepted ──Hello──▶ ready ──end-of-file, bad frame, client reconnected elsewhere──▶ closed
//                   └──anything but a valid Hello, or nothing for ten seconds──▶ closed, after an Error
//
// All of it is guarded by the daemon's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/keeper_link.h"
#include "daemon/program_check.h"
#include "daemon/segment_files.h"
#include "net/frame_socket.h"
#include "os/events.h"
#include "os/socket.h"
#include "store/store.h"

namespace entrepot {

struct Connection {
  Connection(std::uint64_t number, UniqueFd socket) : owner(number), frames(std::move(socket)) {}

  std::uint64_t owner;  // never reused; identifies the connection's waiting requests
  FrameSocket frames;
  os::PeerCredentials peer;
  std::uint64_t accepted_ns = 0;
  std::optional<std::uint32_t> client;  // set by Hello
  bool closing = false;                 // close after the current event
  bool watches_write = false;
  bool has_more = false;            // complete frames are pending in its buffer
  std::uint64_t waiting = 0;        // cost of its waiting requests: see ServerState::begin_wait
  std::uint64_t charged_bytes = 0;  // bytes of its buffers that are charged to the budget
};

// Limits on what clients may make the daemon remember. A connection below its fair share is served whatever the others
// hold. The limit on all incomplete requests and unread answers is half of the store's size, within these bounds.
inline constexpr std::uint64_t kMinBufferLimit = kMaxBodyBytes + (16U << 20);  // any one request, and small ones
inline constexpr std::uint64_t kMaxBufferLimit = 256U << 20;
inline constexpr std::uint64_t kFairBufferBytes = 1U << 20;  // per connection, always allowed
inline constexpr std::uint64_t kWaiterCost = 64;             // per waiting request, plus 1 for each of its IDs
inline constexpr std::uint64_t kMaxWaiting = 1U << 19;       // per connection
inline constexpr std::uint64_t kMaxWaitingOfAll = 1U << 21;  // all connections
inline constexpr std::uint64_t kFairWaiting = 1U << 14;      // per connection, always allowed

enum class WatchKind : std::uint64_t {
  kListen = 1,
  kSignals,
  kKeeper,
  kProvisioner,
  kSpill,
  kConnection,
  kLiveness,
  kProgramCheck
};

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
  ProgramCheck program_check;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections;  // by owner
  bool stopping = false;
  bool handing_over = false;  // stopping because another program takes over: accept nobody any more

  // --- connections, in connections.cpp
  Connection* add_connection(UniqueFd socket, const os::PeerCredentials& peer);  // null: it could not be watched
  void close_connection(std::uint64_t owner);
  [[nodiscard]] Connection* find(std::uint64_t owner);
  void update_watch(Connection& connection);
  template <class Reply>
  void reply(std::uint64_t owner, std::uint64_t request, const Reply& body, std::vector<UniqueFd> fds = {}) {
    send(owner, MessageType::kReply, request, to_wire(body), std::move(fds));
  }
  void refuse(std::uint64_t owner, std::uint64_t request, const Status& status);
  // kStoreFull if this connection, or all of them, hold too much that their peers have not completed or read.
  [[nodiscard]] Status check_buffer_limit(const Connection& connection) const;
  void charge_buffers(Connection& connection);  // charges their current size to the budget
  // Charges a request that may wait, until end_wait() or the end of its connection. kStoreFull: too many are waiting.
  [[nodiscard]] Status begin_wait(Connection& connection, std::uint64_t cost);
  void end_wait(std::uint64_t owner, std::uint64_t cost);
  void send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
            std::vector<UniqueFd> fds);

  // --- clients, in client_registry.cpp
  void hello(Connection& connection, Frame& frame);
  void fork(Connection& connection, std::uint64_t request);
  // Grows the client's pin table to at least so many entries; returns the resulting number.
  [[nodiscard]] Result<std::uint32_t> grow_pins(std::uint32_t client, std::uint32_t pins);
  void watch_adopted_clients();
  void client_died(std::uint32_t client);

  // --- requests of ready connections, in object_requests.cpp and session_requests.cpp
  void handle(Connection& connection, Frame& frame);

  // --- upgrade, in upgrader.cpp
  //
  // Makes the program at `path` take over, after asking it whether it can. `done` gets its version once the keeper has
  // it, and this daemon ends after the current turn; on error, nothing has changed.
  using UpgradeDone = std::function<void(const Result<std::string>&)>;
  void upgrade(const std::string& path, UpgradeDone done);
  void upgrade_to_own_path();
  [[nodiscard]] DaemonStatus daemon_status() const;

 private:
  struct Registration {
    std::uint32_t client = 0;
    std::uint64_t token = 0;
    UniqueFd pin_table;
    UniqueFd liveness;  // the client's end
  };
  [[nodiscard]] Status check_versions(const Connection& connection, const Hello& hello) const;
  [[nodiscard]] Result<Registration> register_client(const ClientIdentity& identity, std::uint32_t pins = 0);
  [[nodiscard]] Status hold_client_descriptors(std::uint32_t client, const ClientIdentity& identity, std::uint32_t pins,
                                               Registration& registration);
  [[nodiscard]] Status reconnect(Connection& connection, const Hello& hello, const std::vector<UniqueFd>& fds);
  [[nodiscard]] std::uint64_t pin_table_memory(std::uint32_t client) const;  // as charged to the budget
  [[nodiscard]] Status watch_liveness(std::uint32_t client);
  void stop_for_upgrade();

  std::uint64_t next_owner_ = 1;
  std::uint64_t waiting_ = 0;  // of all connections
};

}  // namespace entrepot
